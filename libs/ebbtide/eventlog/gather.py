"""One call of the append function for several services: what may go together, who gets what.

Pure: batches in, columns out; the function's row in, answers and recorded events out. Nothing here
waits or touches a database.
"""

import asyncio
import datetime as dt
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from uuid_utils import uuid7

from ebbtide.contracts.envelope import Appended, Position, Recorded
from ebbtide.contracts.errors import Conflict, StaleEpoch
from ebbtide.eventlog.entries import Entry, Stamp, recorded
from ebbtide.eventlog.log import Decided

CALL_EVENTS_MAX = 1000
"""Events of one call, unless one batch alone has more: 10 ms of work, and an answer that fits the
server's send buffer, so that no client that stops reading holds the lock on head."""

STALE, CONFLICT = 1, 2


class Verdict(msgspec.Struct, frozen=True):
    """What the append function answered; ``dropped`` counts units through all batches, from 0."""

    head: Position
    stamp: dt.datetime
    verdicts: Sequence[int]
    revisions: Sequence[int]
    dropped: frozenset[int]
    versions: Sequence[int]


class Waiting(msgspec.Struct, eq=False):
    """A batch whose caller waits for ``answer``. ``ids`` are those of its events, if they stand."""

    decided: Decided
    entries: list[Entry]
    answer: asyncio.Future[Appended]
    ids: list[str]
    written: frozenset[str]
    closing: frozenset[str]
    checked: frozenset[str]


def waiting(decided: Decided, entries: list[Entry], answer: asyncio.Future[Appended]) -> Waiting:
    """Queue-ready form of a batch: its footprint on the streams, and ids for its events."""
    guarded = (stream for unit in decided.units for stream in unit.unmoved)
    expecting = (e.append.stream for e in entries if e.append.expected is not None)
    return Waiting(
        decided=decided,
        entries=entries,
        answer=answer,
        ids=[str(uuid7()) for _ in entries],
        written=frozenset(entry.append.stream for entry in entries),
        closing=frozenset(entry.append.stream for entry in entries if entry.append.closes),
        checked=frozenset((*guarded, *expecting)),
    )


class Gathered:
    """Batches of one call. None of them looks at what an earlier one of them writes."""

    def __init__(self) -> None:
        self.batches: list[Waiting] = []
        self._events = 0
        self._services: set[str] = set()
        self._written: set[str] = set()
        self._closing: set[str] = set()

    def take_from(self, queue: deque[Waiting]) -> None:
        """Move batches from the head of ``queue`` as long as they may go together.

        The first that may not ends the call, so that what was asked first is decided first. Callers
        that no longer wait are left out.
        """
        while queue:
            if queue[0].answer.done():
                queue.popleft()
                continue
            if not self._fits(queue[0]):
                return
            self._add(queue.popleft())

    def _fits(self, batch: Waiting) -> bool:
        if not self.batches:
            return True
        return (
            self._events + len(batch.entries) <= CALL_EVENTS_MAX
            and (batch.decided.revision is None or batch.decided.service not in self._services)
            and self._written.isdisjoint(batch.checked)
            and self._closing.isdisjoint(batch.written)
        )

    def _add(self, batch: Waiting) -> None:
        self.batches.append(batch)
        self._events += len(batch.entries)
        self._written |= batch.written
        self._closing |= batch.closing
        if batch.decided.revision is not None:
            self._services.add(batch.decided.service)


class Event(NamedTuple):
    """One event's arguments, in the order of the function's ``event_`` parameters."""

    unit: int
    stream: str
    expected: int | None
    closes: bool
    type: str
    body: str
    event_id: str
    workspace: str
    actor: str
    cause: str
    service: str
    read_to: int
    decided_at: dt.datetime
    rules: int
    trace: str


def columns(batches: Sequence[Waiting]) -> list[Sequence[object]]:
    """Write batches as the arrays that ``log.append`` takes, in its order."""
    unit_batches: list[int] = []
    guards: list[tuple[int, str, int]] = []
    events: list[Event] = []
    for number, batch in enumerate(batches, 1):
        decided, first = batch.decided, len(unit_batches) + 1
        read_to = decided.read_to.number
        unit_batches += [number] * len(decided.units)
        for unit, given in enumerate(decided.units, first):
            guards += [(unit, stream, read_to) for stream in given.unmoved]
        events += [
            _event(first, entry, event_id, decided)
            for entry, event_id in zip(batch.entries, batch.ids, strict=True)
        ]
    said = [batch.decided for batch in batches]
    return [
        [decided.service for decided in said],
        [decided.revision for decided in said],
        [decided.read_to.epoch for decided in said],
        [decided.read_to.number for decided in said],
        unit_batches,
        *_turned(guards, 3),
        *_turned(events, len(Event._fields)),
    ]


def _event(first: int, entry: Entry, event_id: str, decided: Decided) -> Event:
    append = entry.append
    return Event(
        first + entry.unit,
        append.stream,
        append.expected,
        append.closes,
        entry.tag,
        entry.body.decode(),
        event_id,
        append.workspace,
        append.actor,
        append.cause,
        decided.service,
        decided.read_to.number,
        decided.decided_at,
        decided.rules,
        append.trace,
    )


def _turned(rows: Sequence[tuple[object, ...]], width: int) -> list[Sequence[object]]:
    """Give the columns of ``rows``; of none, that many empty ones."""
    return list(zip(*rows, strict=True)) if rows else [()] * width


def settle(
    batches: Sequence[Waiting], verdict: Verdict
) -> tuple[list[Appended | Conflict], list[Recorded]]:
    """Give each batch its answer or its refusal, and everything that was recorded, in order."""
    outcomes: list[Appended | Conflict] = []
    taken: list[Recorded] = []
    unit = 0
    for number, batch in enumerate(batches):
        refusal = _refusal(batch.decided, verdict, number)
        count = len(batch.decided.units)
        dropped = tuple(n for n in range(count) if unit + n in verdict.dropped)
        outcomes.append(refusal or _record(batch, dropped, verdict, taken))
        unit += count
    return outcomes, taken


def _refusal(decided: Decided, verdict: Verdict, number: int) -> Conflict | None:
    if verdict.verdicts[number] == STALE:
        head = verdict.head
        return StaleEpoch(f"{decided.service} read to {decided.read_to}, the log is at {head}")
    if verdict.verdicts[number] == CONFLICT:
        present = verdict.revisions[number]
        return Conflict(f"{decided.service} is at revision {present}, not {decided.revision}")
    return None


def _record(
    batch: Waiting, dropped: tuple[int, ...], verdict: Verdict, taken: list[Recorded]
) -> Appended:
    """Add the events of the units that stand to ``taken``."""
    decided, before = batch.decided, verdict.head.number
    positions: list[tuple[int, int] | None] = []
    pairs = iter(zip(batch.entries, batch.ids, strict=True))
    for number, unit in enumerate(decided.units):
        first = before + len(taken) + 1
        for _ in unit.appends:
            entry, event_id = next(pairs)
            if number not in dropped:
                stamp = _stamp(verdict, event_id, len(taken))
                taken.append(recorded(decided, entry.append, stamp))
        positions.append(None if number in dropped else (first, before + len(taken)))
    return Appended(
        positions=tuple(positions),
        dropped=dropped,
        revision=0 if decided.revision is None else decided.revision + 1,
        epoch=verdict.head.epoch,
    )


def _stamp(verdict: Verdict, event_id: str, index: int) -> Stamp:
    head = verdict.head
    position, version = head.number + index + 1, verdict.versions[index]
    return Stamp(head.epoch, position, version, event_id, verdict.stamp)
