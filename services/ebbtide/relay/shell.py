"""Publishes event N of the log as message N of the stream, and waits for one answer a batch.

Fed from memory; it reads the log only for what it missed, so it may drop what it holds at any time.
It never publishes what the log does not hold, and never goes on from a message that it has not
compared with the log after a refusal, an outage or its own start. Two relays at once do no harm:
each message is taken from one of them.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Annotated

import msgspec
import structlog

from ebbtide.chassis.bus import Message, Outgoing
from ebbtide.chassis.context import Context, Part
from ebbtide.chassis.settings import load
from ebbtide.contracts import subjects
from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.errors import Conflict, NotFound, Unavailable
from ebbtide.contracts.events import job_of, tag_of
from ebbtide.eventlog import wire
from ebbtide.relay import CARD
from ebbtide.relay.policy import GoOn, MakeAnew, Mark, decide

BATCH_EVENTS = 500
BATCH_BYTES = 2**20
"""A batch is what queued while the last one flew, up to these bounds; one event always fits."""
QUEUE_EVENTS = 20_000
"""Events held while the bus is away; beyond them all are dropped and read again from the log."""
PAGE_EVENTS = 2_000
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.02, 2.0

_log = structlog.get_logger()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """``EBB_RELAY_PAUSE_S``: how long to gather after each batch, if no service hears the stream.

    Four batches for a lone job, each with its answer, are dearer than all that the job decides.
    """

    pause_s: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


class Relay:
    """The relay of one cell, as a part of a process."""

    name = CARD.name

    def __init__(self, context: Context, settings: Settings) -> None:
        self._context = context
        self._pause_s = settings.pause_s
        self._cell = context.cell
        self._stream = subjects.events_stream(context.cell)
        self._queue: deque[Recorded] = deque()
        self._known = 0  # newest position heard of
        self._at = 0  # the stream's newest position, as far as we know
        self._wake = asyncio.Event()
        self._returned = False

    def deliver(self, events: Sequence[Recorded]) -> None:
        """Take committed events from the reader."""
        if len(self._queue) + len(events) > QUEUE_EVENTS:
            self._queue.clear()
        self._queue.extend(events[-QUEUE_EVENTS:])
        self._known = max(self._known, events[-1].position)
        self._wake.set()

    async def start(self) -> None:
        """Attach to the reader at the head; what lies before is read when it is missing."""
        self._context.bus.on_return(self._compare_again)
        head = await self._context.log.head()
        self._known = head.number
        self._context.source.attach(self, after=head.number)

    async def run(self) -> None:
        """Compare, then publish until something speaks against it, and compare again."""
        delay_s = BACKOFF_FIRST_S
        while True:
            before = self._at
            try:
                await self._find_place()
                await self._publish()
            except Conflict as error:
                _log.info("relay.refused", position=self._at, reason=str(error))
            except (Unavailable, NotFound) as error:
                _log.info("relay.waits", position=self._at, reason=str(error))
            delay_s = BACKOFF_FIRST_S if self._at > before else min(delay_s * 2, BACKOFF_MAX_S)
            await asyncio.sleep(delay_s)

    async def stop(self) -> None:
        """Leave nothing behind: the next start compares and reads what is missing."""

    async def _compare_again(self) -> None:
        self._returned = True
        self._wake.set()

    async def _find_place(self) -> None:
        """Learn where the stream stands, and make it anew where it does not follow the log."""
        log = self._context.log
        self._returned = False
        newest = await self._newest()
        row = await log.read(newest.sequence - 1, 1) if newest is not None else []
        head = await log.head()
        self._known = max(self._known, head.number)
        match decide(newest, row[0] if row else None, head):
            case GoOn(after=after):
                self._at = after
            case MakeAnew(above_epoch=above_epoch):
                await self._make_anew(above_epoch)

    async def _newest(self) -> Mark | None:
        try:
            message = await self._context.bus.last(self._stream)
        except NotFound:
            return None
        return None if message is None else _mark(message)

    async def _make_anew(self, above_epoch: int) -> None:
        """Begin an empty stream behind the head; who needs older events reads the log.

        The epoch rises before the old stream goes. Were it the other way round, a crash between the
        two would leave a stream that looks right to readers of a history that has ended.
        """
        log, bus = self._context.log, self._context.bus
        head = await log.head()
        while head.epoch <= above_epoch:
            head = await log.raise_epoch()
            _log.warning("relay.epoch_raised", epoch=head.epoch, position=head.number)
        await bus.delete_stream(self._stream)
        await bus.ensure_stream(self._stream, [subjects.events(self._cell)], head.number + 1)
        self._at = head.number
        _log.warning("relay.stream_made", position=head.number, epoch=head.epoch)

    async def _publish(self) -> None:
        """Publish batch after batch until the bus refuses, fails or comes back from an outage."""
        while not self._returned:
            events = await self._next()
            if events:
                await self._send(events)
            else:
                await self._wake.wait()
                self._wake.clear()

    async def _next(self) -> Sequence[Recorded]:
        """Give events that follow the stream's end: from memory if they are there, else a page."""
        queue = self._queue
        while queue and queue[0].position <= self._at:
            queue.popleft()
        if queue and queue[0].position == self._at + 1:
            return [queue.popleft() for _ in range(min(len(queue), BATCH_EVENTS))]
        if self._known > self._at:
            return await self._context.log.read(self._at, PAGE_EVENTS)
        return ()

    async def _send(self, events: Sequence[Recorded]) -> None:
        """Publish events in batches that the bus takes at once."""
        batch: list[Outgoing] = []
        size = 0
        for recorded in events:
            outgoing = self._outgoing(recorded)
            if batch and (len(batch) == BATCH_EVENTS or size + len(outgoing.data) > BATCH_BYTES):
                await self._fly(batch)
                batch, size = [], 0
            batch.append(outgoing)
            size += len(outgoing.data)
        await self._fly(batch)

    async def _fly(self, batch: Sequence[Outgoing]) -> None:
        await self._context.bus.publish_run(batch)
        self._at = batch[-1].sequence
        if self._pause_s:
            await asyncio.sleep(self._pause_s)

    def _outgoing(self, recorded: Recorded) -> Outgoing:
        headers = {
            subjects.HEADER_EPOCH: str(recorded.epoch),
            subjects.HEADER_EVENT: recorded.event_id,
        }
        if job := job_of(recorded.body):
            headers[subjects.HEADER_JOB] = job
        subject = subjects.event(self._cell, recorded.workspace, tag_of(recorded.body))
        return Outgoing(subject, wire.encode(recorded), headers, recorded.position)


def parts(context: Context) -> list[Part]:
    """Give what a process runs for this service."""
    return [Relay(context, load(Settings, context.environ, "EBB_RELAY_"))]


def _mark(message: Message) -> Mark:
    epoch = message.headers.get(subjects.HEADER_EPOCH, "")
    return Mark(
        sequence=message.sequence,
        epoch=int(epoch) if epoch.isdecimal() else 0,
        event_id=message.headers.get(subjects.HEADER_EVENT, ""),
    )
