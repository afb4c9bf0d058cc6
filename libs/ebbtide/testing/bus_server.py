"""What connections of the in-memory bus share: streams, buckets, routing, faults of a network.

It keeps its streams and buckets while it is stopped, as a file store does. It knows nothing of
services; it must not invent what NATS could not do.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ebbtide.chassis.bus import Entry, Message
from ebbtide.chassis.delivery import Feed
from ebbtide.contracts.subjects import HEADER_EVENT

MAX_KEPT = 100_000
"""Messages a stream keeps before it discards the oldest, like the real one's bound in bytes."""


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How bad the network is. Shares are between 0 and 1 and apply to each delivery.

    ``lose_answer`` lets a guarded write or a run stand while its caller hears ``Unavailable``.
    ``delay_s`` is the longest delay; messages to one handler keep their order.
    """

    drop: float = 0.0
    duplicate: float = 0.0
    delay_s: float = 0.0
    lose_answer: float = 0.0


class Network:
    """Draws faults from a seed, so that a run can be repeated."""

    def __init__(self, faults: Faults, seed: int) -> None:
        self.faults = faults
        self.draw = random.Random(seed)  # noqa: S311 - repeatable on purpose

    def happens(self, share: float) -> bool:
        """Draw whether something of this share happens; draw nothing when it cannot."""
        return share > 0 and self.draw.random() < share

    def copies(self, *, may_drop: bool) -> int:
        """Draw how many times a message arrives."""
        if may_drop and self.happens(self.faults.drop):
            return 0
        return 2 if self.happens(self.faults.duplicate) else 1

    async def travel(self) -> None:
        """Take the time that a message takes; at least let others run, as any real call does."""
        delay_s = self.faults.delay_s
        await asyncio.sleep(self.draw.random() * delay_s if delay_s > 0 else 0)


class Bucket:
    """A key-value bucket with history 1; revisions count over the whole bucket, as in JetStream."""

    def __init__(self) -> None:
        self.revision = 0
        self.entries: dict[str, Entry] = {}


class Stream:
    """A stream that appends in order and discards the oldest beyond its bound."""

    def __init__(self, patterns: Sequence[str], first: int, max_kept: int) -> None:
        self.patterns = tuple(patterns)
        self.first = first
        self.next = first
        self._max_kept = max_kept
        self._messages: dict[int, Message] = {}

    def takes(self, subject: str) -> bool:
        """Say whether messages on ``subject`` belong here."""
        return any(matches(pattern, subject) for pattern in self.patterns)

    def append(self, message: Message) -> None:
        """Keep a message under the next sequence."""
        self._messages[self.next] = message._replace(sequence=self.next, reply="")
        self.next += 1
        while len(self._messages) > self._max_kept:
            del self._messages[self.first]
            self.first += 1

    def after(self, sequence: int) -> Message | None:
        """Give the oldest kept message that follows ``sequence``."""
        return self._messages.get(max(sequence + 1, self.first))

    def last(self) -> Message | None:
        """Give the newest message."""
        return self._messages.get(self.next - 1)

    def last_event(self) -> str:
        """Give the event id of the newest message, empty if it has none."""
        newest = self.last()
        return newest.headers.get(HEADER_EVENT, "") if newest else ""


class Listener(Protocol):
    """A core subscription, as the server sees it."""

    pattern: str
    queue: str
    feed: Feed[Message]


class Watch(Protocol):
    """Somebody who watches keys of a bucket."""

    bucket: str
    key: str
    feed: Feed[Entry]


class Follower(Protocol):
    """Somebody who follows a stream."""

    stream: str

    def kick(self) -> None:
        """Look at the stream again."""
        ...


class Connection(Protocol):
    """A connection, as the server sees it."""

    @property
    def connected(self) -> bool:
        """Say whether messages reach it."""
        ...

    @property
    def listeners(self) -> Sequence[Listener]:
        """Its core subscriptions."""
        ...

    @property
    def watches(self) -> Sequence[Watch]:
        """The keys it watches."""
        ...

    @property
    def followers(self) -> Sequence[Follower]:
        """The streams it follows."""
        ...


class Hub:
    """Routes messages between connections and keeps what JetStream would keep."""

    def __init__(self, network: Network, max_kept: int) -> None:
        self.network = network
        self.max_kept = max_kept
        self.buckets: dict[str, Bucket] = {}
        self.streams: dict[str, Stream] = {}
        self.connections: list[Connection] = []

    def stream_for(self, subject: str) -> Stream | None:
        """Give the stream that takes messages on ``subject``."""
        return next((kept for kept in self.streams.values() if kept.takes(subject)), None)

    def route(self, message: Message, *, keep: bool = True) -> int:
        """Give a message to its stream and to all who listen; return how many should hear it.

        A message that a stream refuses (``keep`` false) reaches the listeners all the same, as in
        NATS.
        """
        for name, kept in self.streams.items():
            if keep and kept.takes(message.subject):
                kept.append(message)
                self.kick(name)
        chosen = self._listeners(message.subject)
        for listener in chosen:
            for _ in range(self.network.copies(may_drop=True)):
                listener.feed.put(message)
        return len(chosen)

    def changed(self, bucket: str, entry: Entry) -> None:
        """Tell those who watch a key; it may come late or twice, but never not at all."""
        for connection in self.connections:
            for watch in connection.watches:
                heard = connection.connected and watch.bucket == bucket
                if heard and matches(watch.key, entry.key):
                    for _ in range(self.network.copies(may_drop=False)):
                        watch.feed.put(entry)

    def kick(self, stream: str) -> None:
        """Have everybody who follows ``stream`` look at it again."""
        for connection in self.connections:
            for follower in connection.followers:
                if follower.stream == stream:
                    follower.kick()

    def _listeners(self, subject: str) -> list[Listener]:
        """Choose who hears a message: every plain listener, and one of each queue."""
        queues: dict[str, list[Listener]] = {}
        chosen: list[Listener] = []
        for connection in self.connections:
            if not connection.connected:
                continue
            for listener in connection.listeners:
                if matches(listener.pattern, subject):
                    (queues.setdefault(listener.queue, []) if listener.queue else chosen).append(
                        listener
                    )
        return chosen + [self.network.draw.choice(members) for members in queues.values()]


def matches(pattern: str, subject: str) -> bool:
    """Say whether ``subject`` falls under ``pattern`` (``*``: one word, a last ``>``: some)."""
    if pattern == subject:
        return True
    if pattern[-1] != ">" and "*" not in pattern:
        return False
    wanted, words = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(words) <= len(wanted):
            return False
        words = words[: len(wanted)]
    return len(wanted) == len(words) and all(
        want in ("*", word) for want, word in zip(wanted, words, strict=True)
    )
