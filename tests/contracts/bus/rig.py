"""What the suites of the bus share: a server to break, handlers that keep, messages to send."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

import pytest

from ebbtide.chassis.bus import Bus, Outgoing
from ebbtide.contracts.errors import Unavailable
from ebbtide.contracts.subjects import HEADER_EPOCH, HEADER_EVENT

Connect = Callable[[], Awaitable[Bus]]


class Outage(Protocol):
    """A server that can be taken away and given back."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


class Breakable(NamedTuple):
    connect: Connect
    server: Outage


class Heard(list[Any]):
    """A handler that keeps what it is given."""

    async def __call__(self, item: Any) -> None:
        self.append(item)

    def data(self) -> list[bytes]:
        return [message.data for message in self]

    def values(self) -> list[bytes]:
        return [entry.value for entry in self]

    def sequences(self) -> list[int]:
        return [message.sequence for message in self]


def run_of(cell: str, first: int, count: int, epoch: int = 1) -> list[Outgoing]:
    """Events of one history; another epoch is another history."""
    return [
        Outgoing(
            f"evt.{cell}.w.job.queued",
            b"event %d" % n,
            {HEADER_EPOCH: str(epoch), HEADER_EVENT: f"event-{epoch}-{n}"},
            n,
        )
        for n in range(first, first + count)
    ]


async def settled(*listening: Bus) -> None:
    """Return once what these connections subscribed to is known to the server."""
    for bus in listening:
        with pytest.raises(Unavailable):
            await bus.request("nobody.listens.here", b"", 5)
