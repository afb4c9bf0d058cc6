"""The bus as services see it: messages, requests, key-value buckets and the events stream.

Two implementations pass one contract suite: NATS (``bus_nats.py``) and memory
(``ebbtide.testing``). Nothing that must not be lost rests on the bus alone: it carries effects,
which are levels, and a copy of the log.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol


class Message(NamedTuple):
    """A message as received; ``sequence`` is its place in a stream, 0 on core subjects."""

    subject: str
    data: bytes
    reply: str = ""
    headers: Mapping[str, str] = {}
    sequence: int = 0


class Entry(NamedTuple):
    """A key's newest value in a bucket; ``revision`` is what the next guarded write must name."""

    key: str
    value: bytes
    revision: int


class Outgoing(NamedTuple):
    """An event on its way to the events stream, where it must get sequence ``sequence``."""

    subject: str
    data: bytes
    headers: Mapping[str, str]
    sequence: int


Handler = Callable[[Message], Awaitable[None]]
Watcher = Callable[[Entry], Awaitable[None]]


class Subscription(Protocol):
    """Something that is being listened to."""

    async def close(self) -> None:
        """Stop listening."""
        ...


class Bus(Protocol):
    """One connection. Calls raise ``Unavailable`` when the server does not answer in time.

    ``subscribe``, ``kv_watch`` and ``follow`` may be called while disconnected, and before their
    bucket or stream exists: they begin when they can. A missing bucket is ``Unavailable``.
    """

    @property
    def connected(self) -> bool:
        """Say whether the server is reachable just now."""
        ...

    def on_return(self, call: Callable[[], Awaitable[None]]) -> None:
        """Have ``call`` awaited after every re-connection: messages may have been missed."""
        ...

    async def publish(self, subject: str, data: bytes) -> None:
        """Send to whoever listens now; nobody acknowledges."""
        ...

    async def request(self, subject: str, data: bytes, timeout_s: float) -> bytes:
        """Send and give the first answer; ``Unavailable`` when nobody answers in time."""
        ...

    async def subscribe(self, subject: str, handler: Handler, queue: str = "") -> Subscription:
        """Have ``handler`` awaited per message, one at a time.

        One member of ``queue`` gets each message.
        """
        ...

    async def ensure_bucket(self, bucket: str) -> None:
        """Make the bucket (history 1) if it is not there."""
        ...

    async def kv_get(self, bucket: str, key: str) -> Entry | None:
        """Read the newest value of a key from the leader."""
        ...

    async def kv_put(self, bucket: str, key: str, value: bytes, revision: int) -> int:
        """Write if the key's newest revision is ``revision`` (0: the key is new).

        Give the new revision.

        Raises:
            Conflict: another write came first.
        """
        ...

    async def kv_watch(self, bucket: str, key: str, watcher: Watcher) -> Subscription:
        """Have ``watcher`` awaited with present values, then with each change in order.

        ``key`` may be ``>`` for all. Values may repeat after a re-connection; none that is still
        the newest is missed.
        """
        ...

    async def ensure_stream(
        self, stream: str, subjects: Sequence[str], first_sequence: int
    ) -> None:
        """Make the events stream if there is none; its next message gets ``first_sequence``."""
        ...

    async def delete_stream(self, stream: str) -> None:
        """Delete a stream; no error if there is none."""
        ...

    async def last(self, stream: str) -> Message | None:
        """Give the newest message of a stream with its headers; None if it holds none.

        Raises:
            NotFound: there is no such stream.
        """
        ...

    async def publish_run(self, messages: Sequence[Outgoing]) -> None:
        """Append consecutive messages to a stream, each only if it gets its sequence.

        Wait for the last's ack.

        Raises:
            Conflict: the stream was not where the first message expected it.
        """
        ...

    async def follow(self, stream: str, after: int, handler: Handler) -> Subscription:
        """Have ``handler`` awaited with every stream message after ``after``, in order, no acks.

        After the stream was made anew it is all that the new one holds, whatever its sequence.
        """
        ...

    async def close(self) -> None:
        """Drain and close within a bound."""
        ...
