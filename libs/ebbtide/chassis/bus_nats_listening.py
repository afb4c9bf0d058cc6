"""Core subscriptions on NATS that outlive connections.

Losing a connection never cancels a handler in the middle of its work; messages sent meanwhile are
missed, as they are by anybody who does not listen.
"""

from collections.abc import Awaitable, Callable

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from ebbtide.chassis.bus import Handler, Message
from ebbtide.chassis.bus_nats_link import Link, warn
from ebbtide.chassis.delivery import MAX_QUEUED, Feed


class Listening:
    """A core subscription that outlives connections; losing one does not cancel its handler."""

    def __init__(self, link: Link, subject: str, handler: Handler, queue: str = "") -> None:
        self._link = link
        self._subject = subject
        self._queue = queue
        self._feed: Feed[Message] = Feed(handler, subject)
        self._dropping = False
        self._unsubscribe: Callable[[], Awaitable[None]] | None = None

    async def open(self, client: Client) -> None:
        """Subscribe on a fresh connection."""
        subscription = await client.subscribe(self._subject, self._queue, cb=self._receive)
        self._unsubscribe = subscription.unsubscribe

    async def drain(self) -> None:
        """Stop listening, and return once what had come is handled."""
        self._link.remove(self)
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        await quietly(unsubscribe)
        await self._feed.drained()

    async def close(self) -> None:
        """Stop listening."""
        self._link.remove(self)
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        await quietly(unsubscribe)
        await self._feed.close()

    async def _receive(self, msg: Msg) -> None:
        headers = msg.headers or {}
        kept = self._feed.put(Message(msg.subject, msg.data, msg.reply, headers))
        if not kept and not self._dropping:
            warn("bus.drops", subject=self._subject, waiting=MAX_QUEUED)
        self._dropping = not kept


async def quietly(unsubscribe: Callable[[], Awaitable[None]] | None) -> None:
    """Unsubscribe, unless the connection has taken the subscription with it."""
    if unsubscribe is not None:
        try:
            await unsubscribe()
        except (errors.Error, OSError):
            return
