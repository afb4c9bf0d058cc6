"""The log in memory, for tests and simulation: the promises of Postgres, asked by the same suite.

It never waits, keeps everything, and derives event ids from positions, so that one seed gives the
same history each time.
"""

import datetime as dt
import hashlib

import msgspec

from ebbtide.contracts.envelope import Append, Appended, Position, Recorded, Unit
from ebbtide.contracts.errors import Conflict, StaleEpoch
from ebbtide.eventlog.entries import OnCommit, Stamp, Stamps, entries_of, recorded
from ebbtide.eventlog.log import Checkpoint, Decided, Snapshot

SNAPSHOTS_KEPT = 2


class _Stream(msgspec.Struct):
    version: int = 0
    last_position: int = 0
    closed: bool = False


class _Kept(msgspec.Struct, frozen=True):
    snapshot: Snapshot
    digest: bytes


class MemoryLog:
    """A log for one process. Set :attr:`on_commit` to have a reader fed by each commit."""

    def __init__(self, clock: Stamps, on_commit: OnCommit | None = None) -> None:
        self.on_commit = on_commit
        self._clock = clock
        self._epoch = 1
        self._events: list[Recorded] = []
        self._streams: dict[str, _Stream] = {}
        self._checkpoints: dict[str, Checkpoint] = {}
        self._snapshots: dict[str, list[_Kept]] = {}

    async def append(self, decided: Decided) -> Appended:
        """Record the units that stand, and the service's checkpoint; see :class:`Log`."""
        entries_of(decided)
        self._refuse(decided)
        stands = [self._stands(unit, decided.read_to) for unit in decided.units]
        before = len(self._events)
        at = self._stamp()
        ranges = [
            self._record(decided, unit, at) if ok else None
            for unit, ok in zip(decided.units, stands, strict=True)
        ]
        revision = self._advance(decided)
        if self.on_commit is not None and len(self._events) > before:
            self.on_commit(self._events[before:])
        return Appended(
            positions=tuple(ranges),
            dropped=tuple(number for number, ok in enumerate(stands) if not ok),
            revision=revision,
            epoch=self._epoch,
        )

    def _refuse(self, decided: Decided) -> None:
        head = self._head()
        if decided.read_to.epoch != head.epoch or decided.read_to.number > head.number:
            raise StaleEpoch(f"{decided.service} read to {decided.read_to}, the log is at {head}")
        present = self._checkpoint(decided.service).revision
        if decided.revision is not None and decided.revision != present:
            raise Conflict(f"{decided.service} is at revision {present}, not {decided.revision}")

    def _stands(self, unit: Unit, read_to: Position) -> bool:
        return all(self._takes(append) for append in unit.appends) and not any(
            self._stream(stream).last_position > read_to.number for stream in unit.unmoved
        )

    def _takes(self, append: Append) -> bool:
        stream = self._stream(append.stream)
        return not stream.closed and append.expected in {None, stream.version}

    def _stamp(self) -> dt.datetime:
        now = self._clock.now()
        return max(now, self._events[-1].at) if self._events else now

    def _record(self, decided: Decided, unit: Unit, at: dt.datetime) -> tuple[int, int]:
        first = len(self._events) + 1
        for append in unit.appends:
            stream = self._streams.setdefault(append.stream, _Stream())
            stream.version += 1
            stream.last_position = len(self._events) + 1
            stream.closed = append.closes
            self._events.append(recorded(decided, append, self._stamped(stream, at)))
        return first, len(self._events)

    def _stamped(self, stream: _Stream, at: dt.datetime) -> Stamp:
        event_id = f"{self._epoch:08x}-0000-7000-8000-{stream.last_position:012x}"
        return Stamp(self._epoch, stream.last_position, stream.version, event_id, at)

    def _advance(self, decided: Decided) -> int:
        if decided.revision is None:
            return 0
        revision = decided.revision + 1
        self._checkpoints[decided.service] = Checkpoint(revision=revision, read_to=decided.read_to)
        return revision

    def _stream(self, name: str) -> _Stream:
        return self._streams.get(name) or _Stream()

    def _head(self) -> Position:
        return Position(self._epoch, len(self._events))

    def _checkpoint(self, service: str) -> Checkpoint:
        never = Checkpoint(revision=0, read_to=Position(self._epoch, 0))
        return self._checkpoints.get(service, never)

    async def head(self) -> Position:
        """Give epoch and position of the newest event."""
        return self._head()

    async def read(self, after: int, limit: int) -> list[Recorded]:
        """Give at most ``limit`` events that follow position ``after``, in order."""
        return self._events[after : after + limit]

    async def read_stream(self, stream: str) -> list[Recorded]:
        """Give all events of one stream, in order."""
        return [event for event in self._events if event.stream == stream]

    async def checkpoint(self, service: str) -> Checkpoint:
        """Give the service's checkpoint; revision 0 and position 0 if it never appended."""
        return self._checkpoint(service)

    async def load_snapshots(self, service: str, fold_version: int) -> list[Snapshot]:
        """Give the whole snapshots of this fold and of the present epoch, newest first."""
        return [
            kept.snapshot
            for kept in self._snapshots.get(service, ())
            if kept.snapshot.fold_version == fold_version
            and kept.snapshot.epoch == self._epoch
            and _digest(kept.snapshot.body) == kept.digest
        ]

    async def save_snapshot(self, service: str, snapshot: Snapshot) -> None:
        """Keep a snapshot, and drop all but the newest two of the service."""
        kept = {
            (known.snapshot.epoch, known.snapshot.position): known
            for known in self._snapshots.get(service, ())
        }
        kept[snapshot.epoch, snapshot.position] = _Kept(snapshot, _digest(snapshot.body))
        newest = sorted(kept, reverse=True)[:SNAPSHOTS_KEPT]
        self._snapshots[service] = [kept[place] for place in newest]

    async def raise_epoch(self) -> Position:
        """Begin a new epoch at the present head."""
        self._epoch += 1
        return self._head()

    async def close(self) -> None:
        """Let go of nothing: memory holds no connections."""


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()
