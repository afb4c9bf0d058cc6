"""The door to the log: what may be asked of it, by whomever it is kept."""

import datetime as dt
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ebbtide.contracts.envelope import Appended, Position, Recorded, Unit


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How far a service's decisions went; ``revision`` is what its next append must name."""

    revision: int
    read_to: Position


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A service's picture after ``position`` of ``epoch``, written by fold ``fold_version``."""

    epoch: int
    position: int
    fold_version: int
    body: bytes


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one call of append says.

    ``revision`` is the service's checkpoint revision; None for a door (api) that keeps no
    checkpoint and whose units rest on nothing but their expected versions.
    """

    service: str
    read_to: Position
    decided_at: dt.datetime
    units: tuple[Unit, ...]
    revision: int | None = None
    rules: int = 1


class Log(Protocol):
    """An append-only log of events with one order. Every method may raise ``Unavailable``."""

    async def append(self, decided: Decided) -> Appended:
        """Record the units that stand, and the service's checkpoint, in one transaction.

        A unit is dropped when a stream's version differs from ``expected``, or an ``unmoved``
        stream has an event after ``read_to``: in both cases by what *others* appended; earlier
        units of the same call never break a later one.

        Raises:
            StaleEpoch: ``read_to`` is of an older epoch; nothing was recorded.
            Conflict: the revision is not the service's; nothing was recorded.
        """
        ...

    async def head(self) -> Position:
        """Give epoch and position of the newest event."""
        ...

    async def read(self, after: int, limit: int) -> list[Recorded]:
        """Give at most ``limit`` events that follow position ``after``, in order."""
        ...

    async def read_stream(self, stream: str) -> list[Recorded]:
        """Give all events of one stream, in order."""
        ...

    async def checkpoint(self, service: str) -> Checkpoint:
        """Give the service's checkpoint; revision 0 and position 0 if it never appended."""
        ...

    async def load_snapshots(self, service: str, fold_version: int) -> list[Snapshot]:
        """Give the service's kept snapshots of this fold and of the present epoch, newest first."""
        ...

    async def save_snapshot(self, service: str, snapshot: Snapshot) -> None:
        """Keep a snapshot, and drop all but the newest two of the service."""
        ...

    async def raise_epoch(self) -> Position:
        """Begin a new epoch at the present head: what was decided before is recorded no more."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class Listener(Protocol):
    """Who is handed events by a reader, in order and without gaps."""

    def deliver(self, events: Sequence[Recorded]) -> None:
        """Take frozen events; must neither block nor raise."""
        ...


class Source(Protocol):
    """The one reader of a process: decodes each event once, hands it, frozen, to every listener."""

    @property
    def position(self) -> Position:
        """Give the epoch and the position up to which events were delivered."""
        ...

    def attach(self, listener: Listener, after: int) -> None:
        """Hand ``listener`` every event that follows ``after``, before and after this call.

        One that is attached already begins again at ``after``.
        """
        ...

    async def reached(self, position: int, timeout_s: float) -> None:
        """Return once events up to ``position`` were delivered to all that are attached.

        Raises:
            Unavailable: they were not within ``timeout_s``.
        """
        ...
