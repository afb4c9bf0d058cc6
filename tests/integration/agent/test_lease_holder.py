"""Holding the lease on a bus that loses answers and buckets, by a clock of the test's own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from ebbtide.agent.lease import DeadlineFile, LeaseHolder, Own, Ties
from ebbtide.contracts.agents import Lease
from ebbtide.contracts.ids import NodeName
from ebbtide.testing.bus import MemoryBus, MemoryServer
from ebbtide.testing.bus_server import Faults
from ebbtide.testing.waiting import wait_until

BUCKET, NODE, LEASE_S = "lease_main", "n1", 180.0


class World:
    """One holder, its file, and a clock that stands still until it is told to go on."""

    def __init__(self, folder: Path) -> None:
        self.server = MemoryServer()
        self.bus = self.server.connect(NODE)
        self.other: MemoryBus = self.server.connect("other")
        self.file = DeadlineFile(folder / "lease")
        self.now_s = 1000.0
        self.stands: list[bool] = []
        self.gone = True
        own = Own(NodeName(NODE), "boot", "me", LEASE_S)
        ties = Ties(self.stands.append, lambda: self.gone, lambda: self.now_s)
        self.holder = LeaseHolder(own, self.bus, BUCKET, self.file, ties)

    async def value(self) -> Lease:
        entry = await self.other.kv_get(BUCKET, NODE)
        assert entry is not None
        return msgspec.json.decode(entry.value, type=Lease)

    async def write(self, **changes: object) -> None:
        entry = await self.other.kv_get(BUCKET, NODE)
        value = Lease(node=NodeName(NODE), boot="", holder="another", count=0, lease_ms=0)
        body = msgspec.json.encode(msgspec.structs.replace(value, **changes))
        await self.other.kv_put(BUCKET, NODE, body, entry.revision if entry else 0)

    async def renewed(self, by_s: float) -> None:
        await wait_until(lambda: self.file.read() == by_s, f"the deadline is {by_s}")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.other.ensure_bucket(BUCKET)
    task = asyncio.create_task(made.holder.run())
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await made.bus.close()
    await made.other.close()
    made.file.close()


async def test_the_deadline_is_a_lease_after_the_write_was_sent(world: World) -> None:
    await world.renewed(1180.0)
    assert world.stands == [True]


async def test_each_renewal_moves_the_deadline(world: World) -> None:
    await world.renewed(1180.0)
    world.now_s = 1060.0
    world.holder.poke()
    await world.renewed(1240.0)


async def test_a_write_that_was_not_acknowledged_moves_nothing(world: World) -> None:
    await world.renewed(1180.0)
    before = await world.value()
    world.now_s = 1060.0
    world.server.hub.network.faults = Faults(lose_answer=1.0)
    world.holder.poke()

    async def stands() -> bool:
        return (await world.value()).count > before.count

    await wait_until(stands, "the write stands on the server")
    assert world.file.read() == 1180.0


async def test_after_a_lost_answer_its_own_value_is_taken_over(world: World) -> None:
    await world.renewed(1180.0)
    world.server.hub.network.faults = Faults(lose_answer=1.0)
    world.holder.poke()
    before = await world.value()

    async def stands() -> bool:
        return (await world.value()).count > before.count

    await wait_until(stands, "the write stands on the server")
    world.now_s = 1090.0
    world.server.hub.network.faults = Faults()
    world.holder.poke()
    await world.renewed(1270.0)
    assert False not in world.stands


async def test_after_a_lost_bucket_the_key_is_made_anew(world: World) -> None:
    await world.renewed(1180.0)
    world.server.hub.buckets.pop(BUCKET)
    await world.other.ensure_bucket(BUCKET)
    world.now_s = 1090.0
    world.holder.poke()
    await world.renewed(1270.0)
    assert False not in world.stands


async def test_a_lease_that_was_taken_ends_at_once_and_waits_until_all_is_gone(
    world: World,
) -> None:
    await world.renewed(1180.0)
    world.gone = False
    await world.write(taken=True)
    world.holder.poke()
    await wait_until(lambda: world.file.read() == 0, "sitters are told that it is over")
    assert world.stands[-1] is False
    assert (await world.value()).taken
    world.gone = True
    await world.renewed(1180.0)
    assert not (await world.value()).taken


async def test_a_lease_of_another_holder_is_not_written_over_while_ours_live(world: World) -> None:
    await world.renewed(1180.0)
    world.gone = False
    await world.write()
    world.holder.poke()
    await wait_until(lambda: world.file.read() == 0, "it is given up")
    assert (await world.value()).holder == "another"


async def test_a_server_that_is_away_until_the_deadline_makes_the_lease_run_out(
    world: World,
) -> None:
    await world.renewed(1180.0)
    world.bus.cut()
    world.now_s = 1181.0
    world.holder.poke()
    await wait_until(lambda: world.stands[-1] is False, "it is known to have run out")


async def test_a_server_that_is_away_for_less_changes_nothing(world: World) -> None:
    await world.renewed(1180.0)
    world.bus.cut()
    world.now_s = 1179.0
    world.holder.poke()
    await wait_until(lambda: len(world.stands) > 1, "it was looked at")
    assert world.stands[-1] is True
