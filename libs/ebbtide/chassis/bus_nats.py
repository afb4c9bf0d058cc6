"""The bus on NATS: messages, key-value buckets and the events stream over one connection.

It adds no promise of its own to what NATS gives, and hides no refusal: a guarded write that did not
stand is a ``Conflict``, a server that is away is ``Unavailable`` at once, without a queue that
would speak later. A handler keeps running when the connection is lost.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import unquote, urlsplit, urlunsplit

from ebbtide.chassis.bus import Entry, Handler, Message, Outgoing, Subscription, Watcher
from ebbtide.chassis.bus_nats_jetstream import REQUEST_TIMEOUT_S, JetStream, stream_of
from ebbtide.chassis.bus_nats_key import KeyWatch
from ebbtide.chassis.bus_nats_link import STATUS, Door, Link
from ebbtide.chassis.bus_nats_listening import Listening
from ebbtide.chassis.bus_nats_ordered import Ordered
from ebbtide.contracts.errors import Conflict, NotFound, Unavailable
from ebbtide.contracts.subjects import (
    EXPECTED_LAST,
    EXPECTED_LAST_EVENT,
    EXPECTED_LAST_ON_SUBJECT,
    HEADER_EVENT,
    kv,
)

CONNECT_WAIT_S = 10.0


class NatsBus:
    """One connection to NATS; implements :class:`ebbtide.chassis.bus.Bus`."""

    def __init__(self, link: Link, *, narrow: bool) -> None:
        self._link = link
        self._narrow = narrow
        self._jetstream = JetStream(link)
        self._made: set[str] = set()

    @classmethod
    async def connect(  # noqa: PLR0913 - all but the first two are keywords with defaults
        cls,
        url: str,
        name: str,
        *,
        user: str = "",
        password: str = "",
        token: str = "",
        inbox_prefix: str = "_INBOX",
        narrow: bool = False,
        wait_s: float = CONNECT_WAIT_S,
    ) -> "NatsBus":
        """Connect, and stay connected until :meth:`close`.

        Credentials may stand in ``url``. ``narrow`` is for an agent, which may read its own keys
        only: a replica may answer such a read, a little behind. With ``wait_s`` 0 the bus is given
        at once and connects when it can.

        Raises:
            Unavailable: no server took the connection within ``wait_s``.
        """
        plain, found = _parted(url)
        user, password = (user, password) if user else found
        link = Link(
            Door(
                url=plain,
                name=name,
                user=user,
                password=password,
                token=token,
                inbox_prefix=inbox_prefix,
            )
        )
        await link.start(wait_s)
        return cls(link, narrow=narrow)

    @property
    def connected(self) -> bool:
        """Say whether the server is reachable just now."""
        return self._link.connected

    def on_return(self, call: Callable[[], Awaitable[None]]) -> None:
        """Have ``call`` awaited after every re-connection: messages may have been missed."""
        self._link.on_return(call)

    async def publish(self, subject: str, data: bytes) -> None:
        """Send to whoever listens now; nobody acknowledges."""
        await self._link.send(subject, data)

    async def request(self, subject: str, data: bytes, timeout_s: float) -> bytes:
        """Send and give the first answer."""
        return (await self._link.ask(subject, data, timeout_s)).data

    async def request_all(self, subject: str, data: bytes, within_s: float) -> list[bytes]:
        """Send a question that many answer, and give every answer that comes ``within_s``."""
        answers: list[bytes] = []

        async def take(message: Message) -> None:
            if STATUS not in message.headers:  # "nobody listens" is no answer
                answers.append(message.data)

        inbox = self._link.client().new_inbox()
        listening = await self.subscribe(inbox, take)
        try:
            await self._link.send(subject, data, reply=inbox)
            await asyncio.sleep(within_s)
        finally:
            await listening.close()
        return answers

    async def subscribe(self, subject: str, handler: Handler, queue: str = "") -> Subscription:
        """Have ``handler`` awaited per message, one at a time."""
        listening = Listening(self._link, subject, handler, queue)
        await self._link.add(listening)
        return listening

    async def ensure_bucket(self, bucket: str) -> None:
        """Make the bucket (history 1) if it is not there, now and whenever it is found lost."""
        await self._jetstream.ensure_bucket(bucket)
        self._made.add(bucket)

    async def kv_get(self, bucket: str, key: str) -> Entry | None:
        """Read the newest value of a key, from the leader unless this connection is narrow."""
        if self._narrow:
            return await self._jetstream.read_key(bucket, key)
        try:
            kept = await self._jetstream.last(stream_of(bucket), kv(bucket, key))
        except NotFound as error:
            if bucket not in self._made:
                raise Unavailable(f"there is no bucket {bucket} yet") from error
            await self._jetstream.ensure_bucket(bucket)
            return None
        return None if kept is None else Entry(key, kept.data, kept.sequence)

    async def kv_put(self, bucket: str, key: str, value: bytes, revision: int) -> int:
        """Write if the key's newest revision is ``revision``; give the new revision."""
        guard = {EXPECTED_LAST_ON_SUBJECT: str(revision)}
        try:
            return await self._jetstream.store(kv(bucket, key), value, guard)
        except Unavailable:
            if bucket in self._made:
                await self._jetstream.ensure_bucket(bucket)  # nobody answers for a lost one
            raise

    async def kv_watch(self, bucket: str, key: str, watcher: Watcher) -> Subscription:
        """Have ``watcher`` awaited with present values, then with each change in order.

        All keys are followed as a stream; one key needs only the right to listen to it and to read
        it.
        """
        if key == ">":
            return await self._watch_all(bucket, watcher)

        async def read() -> Entry | None:
            return await self.kv_get(bucket, key)

        watch = KeyWatch(self._link, (bucket, key), read, watcher)
        await watch.begin()
        return watch

    async def ensure_stream(
        self, stream: str, subjects: Sequence[str], first_sequence: int
    ) -> None:
        """Make the stream if it is not there, its next message getting ``first_sequence``."""
        await self._jetstream.ensure_events(stream, subjects, first_sequence)

    async def delete_stream(self, stream: str) -> None:
        """Delete a stream; no error if there is none."""
        await self._jetstream.delete(stream)

    async def last(self, stream: str) -> Message | None:
        """Give the newest message of a stream with its headers; None if it holds none."""
        return await self._jetstream.last(stream, ">")

    async def publish_run(self, messages: Sequence[Outgoing]) -> None:
        """Append consecutive messages, each only if it gets its sequence; wait for the last's ack.

        One answer speaks for all: each message but the first names the one it follows, so when any
        is refused the last is refused too. The sequence alone would not do: after a foreign message
        has taken the place of the first, the second finds the sequence that it expects.
        """
        guards = _guards(messages)
        for outgoing, guard in zip(messages[:-1], guards[:-1], strict=True):
            await self._link.send(outgoing.subject, outgoing.data, guard)
        final = messages[-1]
        ack = await self._link.ask(final.subject, final.data, REQUEST_TIMEOUT_S, guards[-1])
        if self._jetstream.stored(ack) != final.sequence:
            raise Conflict(f"message {final.sequence} is in the stream, but at another place")

    async def follow(self, stream: str, after: int, handler: Handler) -> Subscription:
        """Have ``handler`` awaited with every stream message after ``after``, in order, no acks."""
        ordered = Ordered(self._link, self._jetstream, stream, after, handler)
        await ordered.begin()
        return ordered

    async def close(self) -> None:
        """Drain and close within a bound."""
        await self._link.close()

    async def _watch_all(self, bucket: str, watcher: Watcher) -> Subscription:
        """Follow a bucket from its start: with history 1 every newest value, then the changes."""
        prefix, stream = len(kv(bucket, "")), stream_of(bucket)

        async def hand(message: Message) -> None:
            await watcher(Entry(message.subject[prefix:], message.data, message.sequence))

        async def make_anew() -> None:
            if bucket in self._made:
                await self._jetstream.ensure_bucket(bucket)

        ordered = Ordered(self._link, self._jetstream, stream, 0, hand, make_anew)
        await ordered.begin()
        return ordered


def _guards(messages: Sequence[Outgoing]) -> list[dict[str, str]]:
    """Give each message's headers with what must stand before it."""
    guards: list[dict[str, str]] = []
    before = ""
    for outgoing in messages:
        guard = {**outgoing.headers, EXPECTED_LAST: str(outgoing.sequence - 1)}
        if before:
            guard[EXPECTED_LAST_EVENT] = before
        before = outgoing.headers.get(HEADER_EVENT, "")
        guards.append(guard)
    return guards


def _parted(urls: str) -> tuple[str, tuple[str, str]]:
    """Take credentials out of addresses, so that no error text can show them."""
    plain, found = [], ("", "")
    for url in urls.split(","):
        parts = urlsplit(url.strip())
        if parts.username and not found[0]:
            found = unquote(parts.username), unquote(parts.password or "")
        plain.append(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))
    return ",".join(plain), found
