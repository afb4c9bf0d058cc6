"""Follows a JetStream stream in order without acks, and begins again wherever something is missing.

A push consumer that acknowledges nothing is the cheapest way to hear a stream. It may lose messages
with its connection, its server or its own queue; each loss shows as a gap in the consumer's count,
a heartbeat that names another count, or silence. Then it is made anew behind the last message
handed over. It keeps no position on the server: a second checkpoint would be a second truth.
"""

import asyncio
from collections.abc import Awaitable, Callable

from nats.aio.client import Client
from nats.aio.msg import Msg

from ebbtide.chassis.bus import Message
from ebbtide.chassis.bus_nats_jetstream import JetStream
from ebbtide.chassis.bus_nats_link import STATUS, Link
from ebbtide.chassis.bus_nats_listening import quietly
from ebbtide.chassis.delivery import Feed, hand_over
from ebbtide.contracts.errors import EbbtideError, NotFound

HEARTBEAT_S = 2.0
SILENCE_S = 2.5 * HEARTBEAT_S
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 2.0
"""Waits between tries to follow a stream that is not there, or cannot be followed just now."""

Handle = Callable[[Message], Awaitable[None]]


class _Life:
    """One consumer: its own inbox, and how many messages it has handed over."""

    def __init__(self, unsubscribe: Callable[[], Awaitable[None]] | None = None) -> None:
        self.unsubscribe = unsubscribe
        self.delivered = 0
        self.heard_at = asyncio.get_running_loop().time()


class Ordered:
    """Hands every message after ``after`` to ``handler``; all of a stream that was made anew."""

    def __init__(
        self,
        link: Link,
        jetstream: JetStream,
        stream: str,
        after: int,
        handler: Handle,
        on_lost: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._link = link
        self._jetstream = jetstream
        self._stream = stream
        self._after = after
        self._handler = handler
        self._on_lost = on_lost
        self._feed: Feed[tuple[_Life, Msg]] = Feed(self._take, stream)
        self._life: _Life | None = None
        self._created = ""
        self._broken = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Follow from now on; if the stream cannot be reached yet, as soon as it can."""
        await self._link.add(self)
        try:
            await self._make()
        except EbbtideError:
            self._broken.set()
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def open(self, client: Client) -> None:
        """Begin anew on a fresh connection."""
        if self._life is not None or self._keeper is not None:
            self._broken.set()

    async def drain(self) -> None:
        """Stop at once: what is missed is read again."""
        await self.close()

    async def close(self) -> None:
        """Stop following."""
        self._link.remove(self)
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        life, self._life = self._life, None
        if life is not None:
            await quietly(life.unsubscribe)
        await self._feed.close()

    async def _keep(self) -> None:
        delay_s = RETRY_FIRST_S
        while True:
            if not self._broken.is_set():
                delay_s = RETRY_FIRST_S
                await self._watch()
                continue
            await self._link.up()
            try:
                await self._make_or_repair()
            except EbbtideError:
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, RETRY_MAX_S)

    async def _watch(self) -> None:
        """Wait until something is missing: a gap was seen, or nothing at all was heard for long."""
        try:
            async with asyncio.timeout(SILENCE_S):
                await self._broken.wait()
        except TimeoutError:
            now = asyncio.get_running_loop().time()
            if self._life is None or now - self._life.heard_at >= SILENCE_S:
                self._broken.set()

    async def _make_or_repair(self) -> None:
        try:
            await self._make()
        except NotFound:
            if self._on_lost is None:
                raise
            await self._on_lost()
            await self._make()

    async def _make(self) -> None:
        """Make a consumer behind the last message handed over, and forget the one before."""
        self._broken.clear()
        old, self._life = self._life, None
        try:
            if old is not None:
                await quietly(old.unsubscribe)
            await self._notice_new_stream()
            await self._consume()
            if await self._notice_new_stream():
                self._broken.set()
        except EbbtideError:
            self._broken.set()
            raise

    async def _notice_new_stream(self) -> bool:
        """Start from the first message when another stream has taken the place of the known one."""
        created = await self._jetstream.created(self._stream)
        known, self._created = self._created, created
        if known in ("", created):
            return False
        self._after = 0
        return True

    async def _consume(self) -> None:
        client = self._link.client()
        inbox = client.new_inbox()
        life = _Life()

        async def receive(msg: Msg) -> None:
            life.heard_at = asyncio.get_running_loop().time()
            if not self._feed.put((life, msg)):
                self._broken.set()

        subscription = await client.subscribe(inbox, cb=receive)
        life.unsubscribe = subscription.unsubscribe
        self._life = life
        try:
            await self._jetstream.consume(self._stream, inbox, self._after, HEARTBEAT_S)
        except EbbtideError:
            await quietly(life.unsubscribe)
            raise

    async def _take(self, item: tuple[_Life, Msg]) -> None:
        life, msg = item
        if life is not self._life:
            return  # of a consumer that was given up
        if msg.headers and STATUS in msg.headers:
            await self._control(life, msg)
            return
        sequence, count = _numbers(msg.reply)
        if count != life.delivered + 1:
            self._broken.set()
            return
        life.delivered = count
        if sequence <= self._after:
            return  # the server starts at the stream's end when ``after`` lies beyond it
        self._after = sequence
        message = Message(msg.subject, msg.data, "", msg.headers or {}, sequence)
        await hand_over(self._handler, message, self._stream)

    async def _control(self, life: _Life, msg: Msg) -> None:
        """Answer flow control when all before it is handed over; compare a heartbeat's count."""
        headers = msg.headers or {}
        ask = msg.reply or headers.get("Nats-Consumer-Stalled", "")
        if headers[STATUS] != "100":
            self._broken.set()
        elif ask:
            await self._link.send(ask, b"")
        elif int(headers.get("Nats-Last-Consumer", life.delivered)) != life.delivered:
            self._broken.set()


def _numbers(reply: str) -> tuple[int, int]:
    """Read the sequences in stream and consumer from ``$JS.ACK.…``, with or without domain."""
    words = reply.split(".")
    shift = 0 if len(words) == 9 else 2
    try:
        return int(words[5 + shift]), int(words[6 + shift])
    except (IndexError, ValueError) as error:
        raise NotFound(f"{reply!r} is no address of a stream message") from error
