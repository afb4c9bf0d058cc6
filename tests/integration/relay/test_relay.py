"""The relay on a log and a bus: in memory, and on Postgres and a NATS server of its own."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ebbtide.chassis.bus import Bus, Message, Outgoing
from ebbtide.chassis.bus_nats import NatsBus
from ebbtide.chassis.clock import SystemClock
from ebbtide.chassis.context import Context
from ebbtide.contracts.errors import NotFound, StaleEpoch, Unavailable
from ebbtide.contracts.subjects import HEADER_EPOCH, HEADER_EVENT, HEADER_JOB
from ebbtide.eventlog import migrate, wire
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.eventlog.postgres import PostgresLog
from ebbtide.eventlog.reader import Reader
from ebbtide.relay.shell import QUEUE_EVENTS, Relay, Settings
from ebbtide.testing.bus import MemoryServer
from ebbtide.testing.logbook import fill
from ebbtide.testing.servers import NatsServer
from ebbtide.testing.waiting import wait_until

STREAM = "EVT_main"


class World(NamedTuple):
    """One log, and a bus for the relay and one for who looks on; ``server`` may be taken away."""

    log: MemoryLog | PostgresLog
    bus: Bus
    onlooker: Bus
    kill: "Switch"
    start: "Switch"


class Switch(NamedTuple):
    turn: object

    def __call__(self) -> None:
        assert callable(self.turn)
        self.turn()


@pytest.fixture(params=["memory", "real"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        memory = MemoryServer()
        log = MemoryLog(SystemClock())
        yield World(
            log, memory.connect(), memory.connect(), Switch(memory.stop), Switch(memory.start)
        )
        return
    server: NatsServer = request.getfixturevalue("private_nats")
    database: str = request.getfixturevalue("database_url")
    await migrate.migrate(database)
    async with AsyncExitStack() as stack:
        postgres = await PostgresLog.connect(database)
        stack.push_async_callback(postgres.close)
        buses = []
        for name in ("relay", "onlooker"):
            bus = await NatsBus.connect(server.url, name)
            stack.push_async_callback(bus.close)
            buses.append(bus)
        yield World(postgres, buses[0], buses[1], Switch(server.kill), Switch(server.start))


class Running:
    """A process with a relay: reader and relay run, and are built anew when the epoch rises."""

    def __init__(self, log: MemoryLog | PostgresLog, bus: Bus, settings: Settings) -> None:
        self._log = log
        self._bus = bus
        self._settings = settings
        self.relay: Relay | None = None
        self.lives = 1

    async def run(self) -> None:
        while True:
            try:
                await self._live()
            except* StaleEpoch:
                self.lives += 1

    async def _live(self) -> None:
        reader = Reader(self._log, poll_s=0.05)
        self._log.on_commit = reader.offer
        context = Context(
            cell="main",
            log=self._log,
            source=reader,
            bus=self._bus,
            clock=SystemClock(),
            store=Path("unused"),
            database_url="",
            environ={},
        )
        self.relay = Relay(context, self._settings)
        await self.relay.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(reader.run())
            group.create_task(self.relay.run())


@asynccontextmanager
async def relaying(
    log: MemoryLog | PostgresLog, bus: Bus, settings: Settings | None = None
) -> AsyncIterator[Running]:
    running = Running(log, bus, settings or Settings())
    task = asyncio.create_task(running.run())
    try:
        yield running
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def newest(bus: Bus) -> Message | None:
    try:
        return await bus.last(STREAM)
    except (NotFound, Unavailable):
        return None


async def relayed(world: World, position: int, timeout_s: float = 20) -> None:
    """Return once the stream's newest message is the event of ``position``."""
    [event] = await world.log.read(position - 1, 1)

    async def is_there() -> bool:
        message = await newest(world.onlooker)
        found = (message.sequence, message.headers.get(HEADER_EVENT)) if message else (0, "")
        return found == (position, event.event_id)

    await wait_until(is_there, f"position {position} is in the stream", timeout_s=timeout_s)


async def settled(world: World) -> int:
    """Append events until the newest is told; give its position.

    A stream that is made anew begins behind the head, so no single event is sure to be told.
    """
    position = 0

    async def is_told() -> bool:
        nonlocal position
        position = await fill(world.log, 1)
        try:
            await relayed(world, position, timeout_s=0.3)
        except AssertionError:
            return False
        return True

    await wait_until(is_told, "new events are told", timeout_s=20)
    return position


async def made(world: World) -> None:
    """Return once there is a stream."""

    async def is_there() -> bool:
        try:
            await world.onlooker.last(STREAM)
        except (NotFound, Unavailable):
            return False
        return True

    await wait_until(is_there, "the stream is made")


async def content(world: World, last: int) -> list[Message]:
    """Give all that the stream holds, up to sequence ``last``."""
    heard: list[Message] = []

    async def hear(message: Message) -> None:
        heard.append(message)

    following = await world.onlooker.follow(STREAM, 0, hear)
    await wait_until(lambda: bool(heard) and heard[-1].sequence >= last, f"message {last}")
    await following.close()
    return heard


async def test_each_event_gets_its_position_as_sequence(world: World) -> None:
    async with relaying(world.log, world.bus):
        await made(world)
        await fill(world.log, 1200)
        await relayed(world, 1200)
        messages = await content(world, 1200)
    events = await world.log.read(0, 1200)
    assert [wire.decode(message.data) for message in messages] == events
    assert [message.sequence for message in messages] == list(range(1, 1201))


async def test_a_message_carries_epoch_event_id_and_job(world: World) -> None:
    async with relaying(world.log, world.bus):
        await made(world)
        await fill(world.log, 1, stream="job-1")
        await relayed(world, 1)
        [message] = await content(world, 1)
    [event] = await world.log.read(0, 1)
    assert message.subject == "evt.main._.job.queued"
    assert message.headers[HEADER_EPOCH] == str(event.epoch)
    assert message.headers[HEADER_EVENT] == event.event_id
    assert message.headers[HEADER_JOB] == "job-1"


class Counting:
    """A bus that counts batches."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.batches: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def publish_run(self, messages: Sequence[Outgoing]) -> None:
        await self._bus.publish_run(messages)
        self.batches.append(len(messages))


async def test_what_comes_within_the_pause_goes_in_one_batch(world: World) -> None:
    counting = Counting(world.bus)
    async with relaying(world.log, counting, Settings(pause_s=0.5)):
        await made(world)
        await fill(world.log, 1)
        await relayed(world, 1)
        await fill(world.log, 1)
        await fill(world.log, 1)
        await relayed(world, 3)
    assert counting.batches == [1, 2]


async def test_a_missing_stream_begins_behind_the_head(world: World) -> None:
    await fill(world.log, 7)
    async with relaying(world.log, world.bus):
        await made(world)
        await fill(world.log, 1)
        await relayed(world, 8)
        [message] = await content(world, 8)
    assert message.sequence == 8


async def test_a_restarted_relay_reads_what_it_missed(world: World) -> None:
    async with relaying(world.log, world.bus):
        await made(world)
        await fill(world.log, 3)
        await relayed(world, 3)
    await fill(world.log, 2500)
    async with relaying(world.log, world.bus):
        await relayed(world, 2503)
    messages = await content(world, 2503)
    assert [message.sequence for message in messages] == list(range(1, 2504))


async def test_appends_go_on_while_the_bus_is_away_and_are_told_later(world: World) -> None:
    async with relaying(world.log, world.bus):
        await made(world)
        await fill(world.log, 3)
        await relayed(world, 3)
        world.kill()
        await fill(world.log, 50)
        world.start()
        await relayed(world, 53)
        messages = await content(world, 53)
    assert [message.sequence for message in messages] == list(range(1, 54))


async def test_what_waits_for_the_bus_is_bounded(world: World) -> None:
    async with relaying(world.log, world.bus) as running:
        await made(world)
        await fill(world.log, 3)
        await relayed(world, 3)
        world.kill()
        await wait_until(lambda: not world.bus.connected, "the bus is away")
        await fill(world.log, QUEUE_EVENTS + 1000)
        assert running.relay is not None
        assert len(running.relay._queue) <= QUEUE_EVENTS
        world.start()
        await relayed(world, QUEUE_EVENTS + 1003)


async def test_a_stream_that_was_deleted_is_made_anew_in_the_same_epoch(world: World) -> None:
    async with relaying(world.log, world.bus):
        await made(world)
        await fill(world.log, 3)
        await relayed(world, 3)
        await world.onlooker.delete_stream(STREAM)
        position = await settled(world)
    assert await world.log.head() == (1, position)


async def test_a_foreign_message_does_not_stay(world: World) -> None:
    async with relaying(world.log, world.bus):
        await made(world)
        await fill(world.log, 3)
        await relayed(world, 3)
        await world.onlooker.publish("evt.main.w.foreign", b"not an event")
        position = await settled(world)
        last = await newest(world.onlooker)
    assert last is not None
    assert [wire.decode(last.data)] == await world.log.read(position - 1, 1)


def _lost_event(epoch: int, number: int) -> Outgoing:
    """Make the message of an event that the log has lost by being put back to an older state."""
    headers = {HEADER_EPOCH: str(epoch), HEADER_EVENT: f"lost-{number}"}
    return Outgoing("evt.main._.job.queued", b"{}", headers, number)


@pytest.mark.parametrize("epoch", [1, 4])
async def test_a_stream_ahead_of_the_log_raises_the_epoch_and_is_made_anew(
    world: World, epoch: int
) -> None:
    await fill(world.log, 2)
    await world.onlooker.ensure_stream(STREAM, ["evt.main.>"], 1)
    await world.onlooker.publish_run([_lost_event(epoch, number) for number in (1, 2, 3)])
    async with relaying(world.log, world.bus):
        await wait_until(lambda: _is_at(world, epoch + 1), "the epoch is raised")
        position = await settled(world)
        last = await newest(world.onlooker)
    assert last is not None
    assert [wire.decode(last.data)] == await world.log.read(position - 1, 1)
    assert await world.log.head() == (epoch + 1, position)


async def _is_at(world: World, epoch: int) -> bool:
    return (await world.log.head()).epoch == epoch


async def test_two_relays_tell_every_event_once(world: World) -> None:
    async with (
        relaying(world.log, world.bus) as one,
        relaying(world.log, world.onlooker) as other,
    ):
        await made(world)
        await wait_until(lambda: bool(one.relay and other.relay), "both run")
        for _ in range(40):
            await fill(world.log, 25)
        await relayed(world, 1000)
    messages = await content(world, 1000)
    first = messages[0].sequence
    assert [message.sequence for message in messages] == list(range(first, 1001))
    events = await world.log.read(first - 1, 1000)
    assert [wire.decode(message.data) for message in messages] == events
