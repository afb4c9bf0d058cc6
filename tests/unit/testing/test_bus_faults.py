"""The faults of the in-memory bus: each does what it says, and a seed repeats them."""

import pytest

from ebbtide.chassis.bus import Message
from ebbtide.contracts.errors import Unavailable
from ebbtide.testing.bus import Faults, MemoryBus, MemoryServer
from ebbtide.testing.waiting import wait_until


async def heard_of(server: MemoryServer, count: int = 100) -> list[int]:
    """Publish numbers and give those that a listener got, in order."""
    bus, heard = server.connect(), []
    ended: list[bool] = []

    async def hear(message: Message) -> None:
        if message.data == b"end":
            ended.append(True)
        else:
            heard.append(int(message.data))

    await bus.subscribe("x", hear)
    for number in range(count):
        await bus.publish("x", b"%d" % number)

    async def end() -> bool:
        await bus.publish("x", b"end")
        return bool(ended)

    await wait_until(end, "the listener has caught up")
    await bus.close()
    return heard


async def test_without_faults_every_message_arrives_once() -> None:
    assert await heard_of(MemoryServer()) == list(range(100))


async def test_dropped_messages_do_not_arrive() -> None:
    heard = await heard_of(MemoryServer(Faults(drop=0.5), seed=1))
    assert 0 < len(heard) < 100
    assert heard == sorted(set(heard))


async def test_duplicated_messages_arrive_twice() -> None:
    heard = await heard_of(MemoryServer(Faults(duplicate=0.5), seed=1))
    assert sorted(set(heard)) == list(range(100))
    assert len(heard) > 100


async def test_delayed_messages_keep_their_order() -> None:
    heard = await heard_of(MemoryServer(Faults(delay_s=0.001), seed=1))
    assert heard == list(range(100))


async def test_one_seed_gives_the_same_faults() -> None:
    bad = Faults(drop=0.3, duplicate=0.3)
    first = await heard_of(MemoryServer(bad, seed=7))
    assert await heard_of(MemoryServer(bad, seed=7)) == first


async def test_another_seed_gives_other_faults() -> None:
    assert await heard_of(MemoryServer(Faults(drop=0.5), seed=1)) != await heard_of(
        MemoryServer(Faults(drop=0.5), seed=2)
    )


async def test_a_write_whose_answer_is_lost_stands() -> None:
    bus = MemoryServer(Faults(lose_answer=1.0)).connect()
    await bus.ensure_bucket("b")
    with pytest.raises(Unavailable):
        await bus.kv_put("b", "n1", b"a", 0)
    entry = await bus.kv_get("b", "n1")
    assert entry is not None
    assert entry.value == b"a"


@pytest.fixture
def pair() -> tuple[MemoryBus, MemoryBus]:
    server = MemoryServer()
    return server.connect(), server.connect()


async def test_one_connection_may_be_cut_alone(pair: tuple[MemoryBus, MemoryBus]) -> None:
    cut, other = pair
    heard: list[Message] = []

    async def hear(message: Message) -> None:
        heard.append(message)

    await cut.subscribe("x", hear)
    cut.cut()
    await other.publish("x", b"missed")
    cut.restore()
    await other.publish("x", b"heard")
    await wait_until(lambda: len(heard) > 0, "a message")
    assert [message.data for message in heard] == [b"heard"]


async def test_a_stream_discards_the_oldest_beyond_its_bound() -> None:
    bus, seen = MemoryServer(max_kept=3).connect(), []

    async def hear(message: Message) -> None:
        seen.append(message.sequence)

    await bus.ensure_stream("EVT", ["evt.>"], 1)
    for _ in range(5):
        await bus.publish("evt.x", b"")
    await bus.follow("EVT", 0, hear)
    await wait_until(lambda: len(seen) == 3, "what is kept")
    assert seen == [3, 4, 5]
