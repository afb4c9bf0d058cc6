"""How workers are run: a runtime plans, starts, signals, observes and cleans them.

``process`` runs them as plain processes beside a keeper. Others (containers, pods) come beside it.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

import msgspec

from ebbtide.agent.model import Life, Note, WorkerKey


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that starting one worker takes. Pure data: what a dry run shows."""

    key: WorkerKey
    note: Note
    args: tuple[str, ...]
    env: dict[str, str]
    code: str = ""
    cpu_milli: int = 0
    memory_mib: int = 0


class Signal(Enum):
    """What may be done to a running worker."""

    TERMINATE = "terminate"
    KILL = "kill"


class Heard(NamedTuple):
    """What a supervisor wants to know: a worker runs, or its record says more than before."""

    running: Callable[[WorkerKey, int, int], None]
    ended: Callable[[Life], None]


class Runtime(Protocol):
    """One way to run workers."""

    def observe(self, heard: Heard) -> list[Life]:
        """Adopt what a former agent left, running or ended; from now on tell ``heard``."""
        ...

    def start(self, plan: Plan) -> Life:
        """Start a worker.

        What becomes of it is told; never raises for the worker's fault.
        """
        ...

    def bury(self, key: WorkerKey, note: Note, detail: str) -> Life:
        """Write down, durably, that a worker never started and never will."""
        ...

    def signal(self, key: WorkerKey, wanted: Signal) -> None:
        """Signal a worker; one that did not start yet never will, or gets it as soon as it has."""
        ...

    def clean(self, slot: int) -> None:
        """Make a slot's folder as new. Blocking; only after its worker's end."""
        ...

    def free(self, slot: int) -> None:
        """Give a cleaned slot to the next worker."""
        ...
