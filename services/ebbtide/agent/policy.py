"""What to do about desired state: a pure comparison of what fleet wants with what the node knows.

Levels, not edges: it may be asked as often as one likes, and answers nothing when all is as
desired.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from ebbtide.agent.model import WorkerKey
from ebbtide.agent.runtimes.plans import key_of
from ebbtide.contracts.agents import DesiredAttempt, DesiredWorker

Fence = tuple[int, int, int]
"""Epoch, attempt and round of a job: a lower one never starts after a higher one was seen."""


class Phase(IntEnum):
    """How far a worker is; it only rises."""

    PREPARED = 0
    STARTING = 1
    RUNNING = 2
    ENDED = 3


class Known(Protocol):
    """What the policy must know of a worker.

    ``ordered``: it was told to end in this agent's life.
    """

    phase: Phase
    ordered: bool


class Prepare(NamedTuple):
    """Get ready and say so; worker 0's agent holds a port."""

    attempt: DesiredAttempt
    worker: DesiredWorker


class Start(NamedTuple):
    """Start a worker."""

    attempt: DesiredAttempt
    worker: DesiredWorker


class End(NamedTuple):
    """Order a worker to end, and kill it ``grace_s`` later."""

    key: WorkerKey
    grace_s: int


class Bury(NamedTuple):
    """Write down that a worker never starts, and say so."""

    key: WorkerKey
    why: str


Step = Prepare | Start | End | Bury


def decide(
    attempts: Sequence[DesiredAttempt],
    known: Mapping[str, Mapping[WorkerKey, Known]],
    fences: Mapping[str, Fence],
    lease_stands: bool,
) -> Iterator[Step]:
    """Say what to do, per desired attempt.

    Args:
        attempts: what fleet desires.
        known: by job, every worker that this node has or remembers.
        fences: by job, the highest fence that this node has seen.
        lease_stands: whether workers that end with the lease may start.
    """
    for attempt in attempts:
        here = known.get(attempt.job, {})
        fence = (attempt.epoch, attempt.attempt, attempt.round)
        if attempt.end is not None:
            yield from _end(attempt, fence, here)
        elif fence < fences.get(attempt.job, fence):
            yield from _bury(attempt, here, "a later attempt was seen here")
        elif before := [key for key, one in here.items() if key.fence < fence and _lives(one)]:
            # Two attempts of a job never overlap on a node, whatever made fleet believe the first
            # is over.
            for key in before:
                yield from _stop(key, here[key], attempt.grace_s, "a later attempt was seen here")
        elif lease_stands or attempt.when_cut_off == "run":
            yield from _run(attempt, here)


def _lives(one: Known) -> bool:
    return one.phase is not Phase.ENDED


def _run(attempt: DesiredAttempt, here: Mapping[WorkerKey, Known]) -> Iterator[Step]:
    may_start = attempt.world == 1 or bool(attempt.master)
    for worker in attempt.workers:
        one = here.get(key_of(attempt, worker))
        if may_start and (one is None or one.phase is Phase.PREPARED):
            yield Start(attempt, worker)
        elif one is None:
            yield Prepare(attempt, worker)


def _end(attempt: DesiredAttempt, fence: Fence, here: Mapping[WorkerKey, Known]) -> Iterator[Step]:
    """End what lives of the attempt, named or not; bury what is named and was never seen."""
    for key, one in here.items():
        if key.fence == fence:
            yield from _stop(key, one, attempt.grace_s, "ended first")
    yield from _bury(attempt, here, "ended first")


def _stop(key: WorkerKey, one: Known, grace_s: int, why: str) -> Iterator[Step]:
    """End one worker, once; one that was only prepared has no process that could be ended."""
    if one.ordered or one.phase is Phase.ENDED:
        return
    yield Bury(key, why) if one.phase is Phase.PREPARED else End(key, grace_s)


def _bury(attempt: DesiredAttempt, here: Mapping[WorkerKey, Known], why: str) -> Iterator[Step]:
    for worker in attempt.workers:
        key = key_of(attempt, worker)
        if key not in here:
            yield Bury(key, why)
