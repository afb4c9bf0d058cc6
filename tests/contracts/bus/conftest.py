"""The bus, in memory and on a real server, for the suites that ask both the same."""

from collections.abc import AsyncIterator

import pytest
from tests.contracts.bus.rig import Breakable, Connect

from ebbtide.chassis.bus import Bus
from ebbtide.chassis.bus_nats import NatsBus
from ebbtide.testing.bus import MemoryServer
from ebbtide.testing.servers import NatsServer


class _MemoryOutage:
    def __init__(self, server: MemoryServer) -> None:
        self._server = server

    def kill(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.start()


async def _closing(opened: list[Bus]) -> None:
    for bus in opened:
        await bus.close()


@pytest.fixture(params=["memory", "nats"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Open connections to one server that several tests share."""
    opened: list[Bus] = []
    memory = MemoryServer()
    url = request.getfixturevalue("nats_url") if request.param == "nats" else ""

    async def open_one() -> Bus:
        bus: Bus = await NatsBus.connect(url, "test") if url else memory.connect()
        opened.append(bus)
        return bus

    yield open_one
    await _closing(opened)


@pytest.fixture
async def bus(connect: Connect) -> Bus:
    return await connect()


@pytest.fixture(params=["memory", "nats"])
async def breakable(request: pytest.FixtureRequest) -> AsyncIterator[Breakable]:
    """Open connections to a server that is this test's own to break."""
    opened: list[Bus] = []
    memory = MemoryServer()
    real: NatsServer | None = None
    if request.param == "nats":
        real = request.getfixturevalue("private_nats")

    async def open_one() -> Bus:
        bus: Bus = await NatsBus.connect(real.url, "test") if real else memory.connect()
        opened.append(bus)
        return bus

    yield Breakable(open_one, real or _MemoryOutage(memory))
    await _closing(opened)
