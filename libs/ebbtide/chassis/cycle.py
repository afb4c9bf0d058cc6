"""The one loop of every deciding service: fold everything new, decide once, commit.

It never reacts to single events and never holds a second truth: what it knows is the fold, how far
it decided is the checkpoint, and the compare-and-set of its revision makes each decision be taken
once.
"""

import asyncio
import datetime as dt
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec
import structlog

from ebbtide.chassis.context import Context
from ebbtide.chassis.service import Card, Decision, Service
from ebbtide.contracts.envelope import Position, Recorded
from ebbtide.contracts.errors import Conflict, StaleEpoch, Unavailable
from ebbtide.eventlog.log import Decided, Snapshot

SNAPSHOT_EVERY = 20_000
"""Events folded between snapshots: reading so many again takes about a tenth of a second."""
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.02, 2.0
REACH_TIMEOUT_S = 10.0

_log = structlog.get_logger()


class Picture(Protocol):
    """A service's private picture: a msgspec Struct that folds."""

    def apply(self, recorded: Recorded) -> None:
        """Fold one event."""
        ...


P = TypeVar("P", bound=Picture)


class Folding(Generic[P]):
    """A service's picture, restored and folded. Who extends it decides, and may have effects."""

    rules = 1
    fold_version = 4

    def __init__(self, card: Card, picture: type[P]) -> None:
        self.name = card.name
        self.reads = card.reads
        self._type = picture
        self.picture = picture()

    def restore(self, body: bytes | None) -> None:
        """Start from a snapshot's body, or from nothing."""
        self.picture = (
            self._type() if body is None else msgspec.msgpack.decode(body, type=self._type)
        )

    def snapshot(self) -> bytes:
        """Write the picture."""
        return msgspec.msgpack.encode(self.picture)

    def fold(self, events: Sequence[Recorded]) -> None:
        """Take events into the picture."""
        apply = self.picture.apply
        for recorded in events:
            apply(recorded)

    async def settle(self, dropped: Sequence[int]) -> None:
        """Have no effects."""


class Pure(Folding[P]):
    """A service that is nothing but a picture and a policy."""

    def __init__(
        self, card: Card, picture: type[P], decide: Callable[[P, dt.datetime], Decision]
    ) -> None:
        super().__init__(card, picture)
        self._decide = decide

    def decide(self, now: dt.datetime) -> Decision:
        """Decide over the whole picture."""
        return self._decide(self.picture, now)


class Cycle:
    """Runs one service as a part of a process."""

    def __init__(self, service: Service, context: Context) -> None:
        self.name = service.name
        self._service = service
        self._context = context
        self._pending: deque[Recorded] = deque()
        self._wake = asyncio.Event()
        self._wake_at: dt.datetime | None = None
        self._epoch = 0
        self._delivered = 0
        self._folded = 0
        self._owed = 0  # nothing is decided before everything up to here is folded
        self._revision = 0
        self._since_snapshot = 0
        self._torn = False  # a fold broke off in the middle
        self._saving: asyncio.Task[None] | None = None

    def deliver(self, events: Sequence[Recorded]) -> None:
        """Take events from the reader; those of streams that the service reads wake it."""
        self._delivered = events[-1].position
        wanted = [event for event in events if event.stream.startswith(self._service.reads)]
        self._pending.extend(wanted)
        if wanted or self._folded < self._owed <= self._delivered:
            self._wake.set()

    def poke(self) -> None:
        """Have the service decide again although no event came: its surroundings changed."""
        self._wake.set()

    async def start(self) -> None:
        """Restore the newest usable snapshot and attach to the reader behind it."""
        service, log = self._service, self._context.log
        self._revision = (await log.checkpoint(service.name)).revision
        head = await log.head()
        self._epoch = head.epoch
        body = None
        for snapshot in await log.load_snapshots(service.name, service.fold_version):
            # One past the head knows what a log that was put back has forgotten.
            if snapshot.position <= head.number:
                body, self._folded = snapshot.body, snapshot.position
                break
        service.restore(body)
        self._context.source.attach(self, after=self._folded)

    async def run(self) -> None:
        """Turn until cancelled; decide first when all that the log holds by now is folded."""
        self._owed = (await self._context.log.head()).number
        self._wake.set()
        while True:
            await self._woken()
            self._fold()
            if self._folded >= self._owed:
                await self._turn()
            self._keep_snapshot()

    async def stop(self) -> None:
        """Leave a snapshot, so that the next start is quick; never one of a torn picture."""
        if self._saving is not None:
            await asyncio.gather(self._saving, return_exceptions=True)
        if self._torn:
            return
        self._fold()
        if self._since_snapshot:
            await self._save(self._take_snapshot())

    async def _woken(self) -> None:
        """Sleep until something new is there, or until the time the last decision named.

        That time says nothing while events are owed: it may be past, and the wait would be none.
        """
        if self._wake_at is None or self._folded < self._owed:
            await self._wake.wait()
        elif not self._wake.is_set():
            left_s = (self._wake_at - self._context.clock.now()).total_seconds()
            try:
                async with asyncio.timeout(max(0.0, left_s)):
                    await self._wake.wait()
            except TimeoutError:
                pass
        self._wake.clear()

    def _fold(self) -> None:
        """Fold what was delivered.

        Events at or before the snapshot's position are known already.
        """
        events, self._pending = self._pending, deque()
        fresh = [event for event in events if event.position > self._folded]
        if fresh:
            self._torn = True
            self._service.fold(fresh)
            self._torn = False
            self._since_snapshot += len(fresh)
        self._folded = max(self._folded, self._delivered)

    async def _turn(self) -> None:
        """Decide once over the whole picture and commit; on conflict read on and decide again.

        The picture stays, since it holds committed events only. A lost answer is no special case:
        the revision tells whether the append stood, and the log holds what it said.
        """
        decision = self._service.decide(self._context.clock.now())
        self._wake_at = decision.wake_at
        dropped: Sequence[int] = ()
        if decision.units:
            try:
                dropped = await self._commit(decision)
            except StaleEpoch:
                raise
            except Conflict:
                await self._read_on()
                return
            except Unavailable as error:
                _log.warning("cycle.unavailable", service=self.name, error=str(error))
                await self._read_on(BACKOFF_FIRST_S)
                return
            if dropped:
                await self._read_on()
        await self._settle(dropped)

    async def _settle(self, dropped: Sequence[int]) -> None:
        """Settle as far as the bus lets us: who waits asks again, and levels are compared again."""
        try:
            await self._service.settle(dropped)
        except Unavailable as error:
            _log.info("cycle.unsettled", service=self.name, error=str(error))

    async def _commit(self, decision: Decision) -> Sequence[int]:
        decided = Decided(
            service=self.name,
            read_to=Position(self._epoch, self._folded),
            decided_at=self._context.clock.now(),
            units=decision.units,
            revision=self._revision,
            rules=self._service.rules,
        )
        appended = await self._context.log.append(decided)
        self._revision = appended.revision
        last = max((span[1] for span in appended.positions if span is not None), default=0)
        self._owed = max(self._owed, last)
        return appended.dropped

    async def _read_on(self, delay_s: float = 0.0) -> None:
        """Learn our revision and read to the head; wait, ever longer, while the log is away."""
        log = self._context.log
        while True:
            await asyncio.sleep(delay_s * (0.5 + random.random() / 2))  # noqa: S311  # jitter, no secret
            try:
                self._revision = (await log.checkpoint(self.name)).revision
                await self._context.source.reached((await log.head()).number, REACH_TIMEOUT_S)
            except Unavailable:
                delay_s = min(max(delay_s * 2, BACKOFF_FIRST_S), BACKOFF_MAX_S)
                continue
            self._wake.set()
            return

    def _keep_snapshot(self) -> None:
        if self._since_snapshot >= SNAPSHOT_EVERY and (self._saving is None or self._saving.done()):
            self._saving = asyncio.create_task(self._save(self._take_snapshot()))

    def _take_snapshot(self) -> Snapshot:
        self._since_snapshot = 0
        return Snapshot(
            epoch=self._epoch,
            position=self._folded,
            fold_version=self._service.fold_version,
            body=self._service.snapshot(),
        )

    async def _save(self, snapshot: Snapshot) -> None:
        """Save off the cycle's path.

        A snapshot that could not be saved costs reading, nothing else.
        """
        try:
            await self._context.log.save_snapshot(self.name, snapshot)
        except Unavailable as error:
            _log.warning("snapshot.unsaved", service=self.name, error=str(error))
