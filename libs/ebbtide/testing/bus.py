"""The bus in memory: a full twin of NATS for tests, with several connections to one server.

It passes the contract suite that the real one passes (``tests/contracts/bus``). A test may
cut and restore one connection or the whole server; a seed may drop, duplicate and delay messages
and lose answers, as a network would::

    server = MemoryServer()
    services, agent = server.connect(), server.connect("n1")
    agent.cut()
    agent.restore()
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence

from ebbtide.chassis.bus import Entry, Handler, Message, Outgoing, Subscription, Watcher
from ebbtide.chassis.delivery import Feed, hand_over, run_alone
from ebbtide.contracts.errors import Conflict, NotFound, Unavailable
from ebbtide.contracts.subjects import HEADER_EVENT
from ebbtide.testing.bus_server import MAX_KEPT, Bucket, Faults, Hub, Network, Stream

CLOSE_TIMEOUT_S = 3.0
"""How long handlers may run on after their bus was told to close."""

__all__ = ["Faults", "MemoryBus", "MemoryServer"]


class MemoryServer:
    """What a test holds: it opens connections, cuts them and restores them."""

    def __init__(
        self, faults: Faults | None = None, seed: int = 0, max_kept: int = MAX_KEPT
    ) -> None:
        self.hub = Hub(Network(faults or Faults(), seed), max_kept)
        self._buses: list[MemoryBus] = []

    def connect(self, name: str = "", inbox: str = "") -> "MemoryBus":
        """Open a connection; answers come to subjects under ``inbox``, if it is given."""
        bus = MemoryBus(self.hub, name, inbox)
        self._buses.append(bus)
        return bus

    def stop(self) -> None:
        """Cut every connection; what is kept stays."""
        for bus in self._buses:
            bus.cut()

    def start(self) -> None:
        """Restore every connection."""
        for bus in self._buses:
            bus.restore()


class _Listener:
    """A core subscription."""

    def __init__(self, bus: "MemoryBus", pattern: str, handler: Handler, queue: str) -> None:
        self.pattern = pattern
        self.queue = queue
        self.feed: Feed[Message] = Feed(handler, pattern, bus.hub.network.travel)
        self._bus = bus

    async def close(self) -> None:
        """Stop listening."""
        if self in self._bus.listeners:
            self._bus.listeners.remove(self)
        await self.feed.close()


class _Watch:
    """A watch on one key or on all keys of a bucket."""

    def __init__(self, bus: "MemoryBus", bucket: str, key: str, watcher: Watcher) -> None:
        self.bucket = bucket
        self.key = key
        self.feed: Feed[Entry] = Feed(watcher, f"{bucket}/{key}", bus.hub.network.travel)
        self._bus = bus

    def refresh(self) -> None:
        """Hand over what the bucket holds now."""
        kept = self._bus.hub.buckets.get(self.bucket)
        entries = kept.entries.values() if kept else ()
        present = [entry for entry in entries if self.key in (">", entry.key)]
        for entry in sorted(present, key=lambda entry: entry.revision):
            self.feed.put(entry)

    async def close(self) -> None:
        """Stop watching."""
        if self in self._bus.watches:
            self._bus.watches.remove(self)
        await self.feed.close()


class _Follower:
    """Follows a stream; after the stream was re-made it gets all that the new one holds."""

    def __init__(self, bus: "MemoryBus", stream: str, after: int, handler: Handler) -> None:
        self.stream = stream
        self._bus = bus
        self._after = after
        self._handler = handler
        self._seen: Stream | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._context = contextvars.copy_context()

    def kick(self) -> None:
        """Look at the stream again."""
        if self._task is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._run(), context=self._context)

    async def close(self) -> None:
        """Stop following."""
        self._closed = True
        if self in self._bus.followers:
            self._bus.followers.remove(self)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            await self._bus.hub.network.travel()  # what follows close behind comes along
            while (message := self._next()) is not None:
                await hand_over(self._handler, message, self.stream)
        finally:
            self._task = None

    def _next(self) -> Message | None:
        kept = self._bus.hub.streams.get(self.stream)
        if self._closed or not self._bus.connected or kept is None:
            return None
        if kept is not self._seen:
            self._after = 0 if self._seen is not None else self._after
            self._seen = kept
        message = kept.after(self._after)
        self._after = message.sequence if message else self._after
        return message


class MemoryBus:
    """One connection to a :class:`MemoryServer`; implements :class:`ebbtide.chassis.bus.Bus`."""

    def __init__(self, hub: Hub, name: str = "", inbox: str = "") -> None:
        self.hub = hub
        self.name = name
        self._inbox = inbox or f"_INBOX.{id(self)}"
        self.listeners: list[_Listener] = []
        self.watches: list[_Watch] = []
        self.followers: list[_Follower] = []
        self._up = True
        self._closed = False
        self._made: set[str] = set()
        self._calls: list[tuple[Callable[[], Awaitable[None]], contextvars.Context]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers: set[asyncio.Future[bytes]] = set()
        self._inboxes = 0
        hub.connections.append(self)

    @property
    def connected(self) -> bool:
        """Say whether the server is reachable just now."""
        return self._up

    def cut(self) -> None:
        """Lose the connection: messages are missed, and waiting requests fail."""
        self._up = False
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(Unavailable("the connection was lost before an answer came"))

    def restore(self) -> None:
        """Get the connection back: watches and followers catch up, then ``on_return`` calls run."""
        if self._up or self._closed:
            return
        self._up = True
        for watch in self.watches:
            if watch.key == ">" and watch.bucket in self._made:
                self.hub.buckets.setdefault(watch.bucket, Bucket())
            watch.refresh()
        for follower in self.followers:
            follower.kick()
        loop = asyncio.get_running_loop()
        for call, context in self._calls:
            task = loop.create_task(run_alone(call, "on_return"), context=context)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def vanish(self) -> None:
        """Be gone for good and at once, as the connection of a process that was killed."""
        self.cut()
        self._closed = True
        if self in self.hub.connections:
            self.hub.connections.remove(self)

    def on_return(self, call: Callable[[], Awaitable[None]]) -> None:
        """Have ``call`` awaited after every re-connection."""
        self._calls.append((call, contextvars.copy_context()))

    async def publish(self, subject: str, data: bytes) -> None:
        """Send to whoever listens now."""
        self._check()
        self.hub.route(Message(subject, data))

    async def request(self, subject: str, data: bytes, timeout_s: float) -> bytes:
        """Send and give the first answer."""
        self._check()
        self._inboxes += 1
        inbox = f"{self._inbox}.{self._inboxes}"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def resolve(message: Message) -> None:
            if not answer.done():
                answer.set_result(message.data)

        listener = await self.subscribe(inbox, resolve)
        self._answers.add(answer)
        try:
            if not self.hub.route(Message(subject, data, inbox)):
                raise Unavailable(f"nobody listens on {subject}")
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as late:
            raise Unavailable(f"no answer on {subject} within {timeout_s:g} s") from late
        finally:
            self._answers.discard(answer)
            await listener.close()

    async def subscribe(self, subject: str, handler: Handler, queue: str = "") -> Subscription:
        """Have ``handler`` awaited per message, one at a time."""
        listener = _Listener(self, subject, handler, queue)
        self.listeners.append(listener)
        return listener

    async def ensure_bucket(self, bucket: str) -> None:
        """Make the bucket if it is not there, now and whenever it is found lost."""
        await self._trip()
        self._made.add(bucket)
        self.hub.buckets.setdefault(bucket, Bucket())

    async def kv_get(self, bucket: str, key: str) -> Entry | None:
        """Read the newest value of a key."""
        await self._trip()
        if bucket in self._made:
            self.hub.buckets.setdefault(bucket, Bucket())
        return self._bucket(bucket).entries.get(key)

    async def kv_put(self, bucket: str, key: str, value: bytes, revision: int) -> int:
        """Write if the key's newest revision is ``revision``; give the new revision."""
        await self._trip()
        kept = self._bucket(bucket)
        present = kept.entries.get(key)
        found = present.revision if present else 0
        if found != revision:
            raise Conflict(f"{key} in {bucket} is at revision {found}, not {revision}")
        kept.revision += 1
        entry = kept.entries[key] = Entry(key, value, kept.revision)
        self.hub.changed(bucket, entry)
        await self._come_back()
        return entry.revision

    async def kv_watch(self, bucket: str, key: str, watcher: Watcher) -> Subscription:
        """Have ``watcher`` awaited with present values, then with each change in order."""
        watch = _Watch(self, bucket, key, watcher)
        self.watches.append(watch)
        if self._up:
            watch.refresh()
        return watch

    async def ensure_stream(
        self, stream: str, subjects: Sequence[str], first_sequence: int
    ) -> None:
        """Make the stream if it is not there, its next message getting ``first_sequence``."""
        await self._trip()
        kept = Stream(subjects, first_sequence, self.hub.max_kept)
        self.hub.streams.setdefault(stream, kept)

    async def delete_stream(self, stream: str) -> None:
        """Delete a stream; no error if there is none."""
        await self._trip()
        self.hub.streams.pop(stream, None)

    async def last(self, stream: str) -> Message | None:
        """Give the newest message of a stream; None if it holds none."""
        await self._trip()
        kept = self.hub.streams.get(stream)
        if kept is None:
            raise NotFound(f"there is no stream {stream}")
        return kept.last()

    async def publish_run(self, messages: Sequence[Outgoing]) -> None:
        """Append consecutive messages, each only if it gets its sequence."""
        await self._trip()
        stands, before = True, ""
        for outgoing in messages:
            kept = self.hub.stream_for(outgoing.subject)
            if kept is None:
                raise Unavailable(f"no stream takes {outgoing.subject}")
            stands = kept.next == outgoing.sequence and (not before or kept.last_event() == before)
            message = Message(outgoing.subject, outgoing.data, "", dict(outgoing.headers))
            self.hub.route(message, keep=stands)
            before = outgoing.headers.get(HEADER_EVENT, "")
        if not stands:
            raise Conflict(f"message {messages[-1].sequence} did not get its sequence")
        await self._come_back()

    async def follow(self, stream: str, after: int, handler: Handler) -> Subscription:
        """Have ``handler`` awaited with every stream message after ``after``, in order."""
        follower = _Follower(self, stream, after, handler)
        self.followers.append(follower)
        follower.kick()
        return follower

    async def close(self) -> None:
        """Let handlers end within a bound, and stop everything else."""
        listening: list[Subscription] = [*self.listeners, *self.watches, *self.followers]
        drained = [listener.feed.drained() for listener in self.listeners]
        self.listeners.clear()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await asyncio.gather(*drained)
        except TimeoutError:
            pass  # their handlers are cancelled below
        self.cut()
        self._closed = True
        for subscription in listening:
            await subscription.close()
        running = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self in self.hub.connections:
            self.hub.connections.remove(self)

    async def _come_back(self) -> None:
        """Bring the answer to a write home: it may be late, or lost although the write stands."""
        network = self.hub.network
        if network.happens(network.faults.lose_answer):
            raise Unavailable("the connection was lost before the answer came")
        if network.faults.delay_s > 0:
            await network.travel()
            self._check()

    def _check(self) -> None:
        if not self._up:
            raise Unavailable("not connected")

    async def _trip(self) -> None:
        self._check()
        await self.hub.network.travel()
        self._check()

    def _bucket(self, bucket: str) -> Bucket:
        kept = self.hub.buckets.get(bucket)
        if kept is None:
            if bucket in self._made:
                self.hub.buckets[bucket] = Bucket()  # lost; this call fails all the same
            raise Unavailable(f"there is no bucket {bucket} yet")
        return kept
