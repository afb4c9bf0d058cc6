"""Closed sets of words about ends, and how people are told of them."""

import signal
from enum import Enum
from typing import Literal, assert_never

import msgspec

from ebbtide.contracts.ids import NodeNumber


class Outcome(str, Enum):
    """How an attempt ended. Only these; recovery's verdict on the job is another matter."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PREEMPTED = "preempted"
    STOPPED = "stopped"
    TIME_LIMIT = "time_limit"
    CUT_OFF = "cut_off"
    LOST = "lost"
    REFUSED = "refused"


class EndCause(str, Enum):
    """How a worker ended, as its agent saw it.

    ``exited`` and ``signalled`` carry the raw wait status; ``oom`` is a kill by the host's memory
    limit; ``lost`` means nobody saw the end (its sitter died, or its node was called lost) and is
    never success; ``not_started`` is a worker whose attempt was ended first; ``start_failed`` one
    that could not be executed, with the status that a shell would give if its command is why;
    ``lease`` one that was ended because its node's lease ran out.
    """

    EXITED = "exited"
    SIGNALLED = "signalled"
    OOM = "oom"
    LOST = "lost"
    NOT_STARTED = "not_started"
    START_FAILED = "start_failed"
    LEASE = "lease"


StopReason = Literal[
    "worker_failed", "stop_requested", "preempted", "drained", "time_limit", "hang"
]
Charge = Literal["in_quota", "idle"]


def is_well(cause: EndCause, status: int | None) -> bool:
    """Say whether a worker did its work: it exited with code 0."""
    return cause is EndCause.EXITED and status == 0


def exit_code(status: int) -> int:
    """Read a raw wait status: the exit code, or minus the number of the signal that killed it."""
    signal_number = status & 0x7F
    return -signal_number if signal_number else status >> 8 & 0xFF


def signal_name(number: int) -> str:
    """Name a signal as people know it."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def how_ended(cause: EndCause, status: int | None, detail: str) -> str:
    """Say how a worker ended, from its cause and the raw wait status."""
    match cause:
        case EndCause.EXITED | EndCause.SIGNALLED:
            how = _waited(status)
        case EndCause.OOM:
            how = "was killed: out of memory"
        case EndCause.LOST:
            how = "was lost"
        case EndCause.NOT_STARTED:
            how = "never started"
        case EndCause.START_FAILED:
            how = "could not be started"
        case EndCause.LEASE:
            how = "was ended: its node's lease ran out"
        case _:
            assert_never(cause)
    return f"{how} ({detail})" if detail else how


def _waited(status: int | None) -> str:
    if status is None:
        return "ended"
    code = exit_code(status)
    return f"exited with code {code}" if code >= 0 else f"was killed by {signal_name(-code)}"


class KeepAll(msgspec.Struct, frozen=True, kw_only=True, tag="all"):
    """The next attempt starts on the same placement, with no step of the scheduler."""


class KeepAllBut(msgspec.Struct, frozen=True, kw_only=True, tag="all_but"):
    """The scheduler replaces ``nodes`` and keeps the rest where it can."""

    nodes: tuple[NodeNumber, ...]


class KeepNone(msgspec.Struct, frozen=True, kw_only=True, tag="none"):
    """The scheduler places the gang anew."""


Keep = KeepAll | KeepAllBut | KeepNone
