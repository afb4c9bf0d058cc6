"""What fleet writes to nodes: nothing before it is current, nothing older than what is there."""

import datetime as dt
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from ebbtide.chassis.context import Context
from ebbtide.contracts import seals, subjects
from ebbtide.contracts.agents import Desired
from ebbtide.contracts.envelope import Append, Recorded
from ebbtide.contracts.errors import Conflict, Malformed, Rejected
from ebbtide.contracts.events import (
    GangPlaced,
    NodeJoined,
    Place,
    TokenCreated,
    TokenRevoked,
)
from ebbtide.contracts.ids import NodeNumber, PoolName, QuotaName, TokenId, placement_id
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.eventlog.reader import Reader
from ebbtide.fleet.desired import desired
from ebbtide.fleet.inbox import Inbox, Stale
from ebbtide.fleet.shell import Fleet
from ebbtide.model.job import Job
from ebbtide.testing.builders import (
    START,
    TEAM,
    VirtualClock,
    job_name,
    recorded,
    registration,
    spec,
)
from ebbtide.testing.bus import MemoryBus, MemoryServer
from ebbtide.testing.logbook import decided, unit
from ebbtide.testing.waiting import wait_until

KEY = (1, job_name(1), 1)
TOKEN = "ebb_agent_a1_secret"
STALE = Stale(key=KEY, round=1)
BUCKET = subjects.desired_bucket("main")


class SlowBus(MemoryBus):
    """A bus on which writing takes five seconds; ``meanwhile`` is done in them."""

    def __init__(self, server: MemoryServer, clock: VirtualClock) -> None:
        super().__init__(server.hub)
        self._clock = clock
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def kv_put(self, bucket: str, key: str, value: bytes, revision: int) -> int:
        self._clock.advance(5)
        if self.meanwhile is not None:
            await self.meanwhile()
        return await super().kv_put(bucket, key, value, revision)


async def _fleet(*names: str, epoch: int = 1) -> tuple[Fleet, SlowBus]:
    """Make a fleet that has folded these nodes, or one, and has not decided yet."""
    clock = VirtualClock()
    log, bus = MemoryLog(clock), SlowBus(MemoryServer(), clock)
    for number, name in enumerate(names or ("n1",), start=1):
        said = registration(name)
        body = NodeJoined(
            node=NodeNumber(number),
            name=said.node,
            pool=said.pool,
            address=said.address,
            boot=said.boot,
            capacity=said.capacity,
        )
        append = Append(stream=f"node-{number}", body=body)
        await log.append(decided(unit(append), read_to=await log.head()))
    while (await log.head()).epoch < epoch:
        await log.raise_epoch()
    await bus.ensure_bucket(BUCKET)
    reader = Reader(log)
    await reader.start()
    fleet = Fleet(Context("main", log, reader, bus, clock, Path(), "", {}))
    fleet.fold(await log.read(0, 10))
    return fleet, bus


def _placement(node: NodeNumber) -> GangPlaced:
    return GangPlaced(
        job=job_name(1),
        attempt=1,
        placement=placement_id(job_name(1), 1),
        pool=PoolName("default"),
        quota=QuotaName("default"),
        charge="in_quota",
        places=(Place(node),),
        total={},
    )


async def test_nothing_is_written_before_the_log_was_read_to_its_end() -> None:
    fleet, bus = await _fleet()
    await fleet.write()
    assert await bus.kv_get(BUCKET, "n1") is None
    fleet.decide(START)
    await fleet.settle(())
    await fleet.write()
    assert await bus.kv_get(BUCKET, "n1") is not None


async def test_a_picture_that_is_behind_does_not_overwrite_what_another_replica_wrote() -> None:
    fleet, bus = await _fleet()
    asked = desired(fleet.picture, Inbox(stale={NodeNumber(1): {KEY: STALE}}), NodeNumber(1), START)
    newer = msgspec.json.encode(msgspec.structs.replace(asked, epoch=1, position=99))
    await bus.kv_put(BUCKET, "n1", newer, 0)
    fleet.decide(START + dt.timedelta(seconds=1))
    await fleet.write()
    entry = await bus.kv_get(BUCKET, "n1")
    assert entry is not None
    assert entry.value == newer


async def test_a_back_off_that_ends_while_another_node_is_written_is_not_overlooked() -> None:
    fleet, bus = await _fleet("n1", "n2")
    waiting = Job(
        id=job_name(1),
        workspace=TEAM,
        spec=spec(),
        version=9,
        submitted=1,
        submitted_at=START,
        stage="placed",
        attempt=2,
        placed_at=3,
        placement=_placement(NodeNumber(2)),
        not_before=START + dt.timedelta(seconds=1),
    )
    fleet.picture.world.jobs[waiting.id] = waiting
    fleet.picture.on_node[NodeNumber(2)] = {waiting.id: None}
    fleet.picture.delayed[waiting.id] = None

    bus.meanwhile = lambda: fleet.settle(())
    fleet.decide(START)
    await fleet.write()
    entry = await bus.kv_get(BUCKET, "n2")
    assert entry is not None
    assert b'"attempt":2' in entry.value


async def test_what_was_placed_before_a_reboot_is_not_asked_of_the_new_life() -> None:
    fleet, _ = await _fleet()
    number = NodeNumber(1)
    placed = Job(
        id=job_name(1),
        workspace=TEAM,
        spec=spec(),
        version=9,
        submitted=1,
        submitted_at=START,
        stage="placed",
        attempt=1,
        placed_at=3,
        placement=_placement(number),
    )
    fleet.picture.world.jobs[placed.id] = placed
    fleet.picture.on_node[number] = {placed.id: None}
    assert desired(fleet.picture, Inbox(), number, START).attempts
    there = fleet.picture.world.nodes[number]
    fleet.picture.world.nodes[number] = msgspec.structs.replace(there, boot="2", fenced_at=4)
    told = desired(fleet.picture, Inbox(), number, START)
    assert (told.boot, told.attempts) == ("2", ())


async def test_a_write_that_is_refused_while_the_bus_comes_back_is_tried_again() -> None:
    fleet, bus = await _fleet()
    fleet.decide(START)
    await fleet.settle(())

    async def another_writes_and_the_bus_comes_back() -> None:
        bus.meanwhile = None
        await bus.kv_put(BUCKET, "n1", msgspec.json.encode(Desired(epoch=1, position=0)), 0)
        await fleet._ask_again()

    bus.meanwhile = another_writes_and_the_bus_comes_back
    with pytest.raises(Conflict):
        await fleet.write()
    await fleet.write()
    entry = await bus.kv_get(BUCKET, "n1")
    assert entry is not None
    assert msgspec.json.decode(seals.body_of(entry.value), type=Desired).boot == "boot-1"


async def test_a_node_whose_orders_no_message_can_carry_keeps_no_other_from_its_own() -> None:
    fleet, bus = await _fleet("n1", "n2")
    put = bus.kv_put

    async def small(bucket: str, key: str, value: bytes, revision: int) -> int:
        if key == "n1":
            raise Malformed(Rejected(code="bus.too_large", detail="more than the server takes"))
        return await put(bucket, key, value, revision)

    bus.kv_put = small  # type: ignore[method-assign]  # a server with a small bound
    fleet.decide(START)
    await fleet.settle(())
    await fleet.write()
    assert await bus.kv_get(BUCKET, "n2") is not None


async def test_a_node_that_has_less_to_do_is_told_soon_and_not_at_once() -> None:
    fleet, _ = await _fleet()
    fleet.decide(START)
    await fleet.write()
    pokes: list[None] = []
    fleet.poke_writer = lambda: pokes.append(None)
    fleet.picture.eased[NodeNumber(1)] = None
    await fleet.settle(())
    assert pokes == []
    await wait_until(lambda: len(pokes) == 1, "the writer is poked")


async def test_nodes_are_told_of_a_new_epoch_in_which_nothing_has_happened_yet() -> None:
    """A log that was put back: what nodes know of the old one must not silence them for ever."""
    fleet, bus = await _fleet(epoch=2)
    forgotten = msgspec.json.encode(Desired(epoch=1, position=99))
    await bus.kv_put(BUCKET, "n1", forgotten, 0)
    fleet.decide(START)
    await fleet.settle(())
    await fleet.write()
    entry = await bus.kv_get(BUCKET, "n1")
    assert entry is not None
    told = msgspec.json.decode(seals.body_of(entry.value), type=Desired)
    assert (told.epoch, told.position) == (2, 1)


def _token() -> Recorded:
    key = seals.fingerprint(TOKEN)
    body = TokenCreated(token=TokenId("a1"), kind="agent", subject="n1", secret_sha256=key)
    return recorded(Append(stream="token-a1", body=body), position=8)


def _revoked() -> Recorded:
    body = TokenRevoked(token=TokenId("a1"))
    return recorded(Append(stream="token-a1", body=body, expected=1), position=9)


async def test_orders_are_sealed_under_the_tokens_of_the_nodes_agent() -> None:
    fleet, bus = await _fleet("n1", "n2")
    fleet.fold([_token()])
    fleet.decide(START)
    await fleet.settle(())
    await fleet.write()
    first, second = await bus.kv_get(BUCKET, "n1"), await bus.kv_get(BUCKET, "n2")
    assert first is not None
    assert second is not None
    seals.unseal("n1", first.value, TOKEN)
    with pytest.raises(Malformed):
        seals.unseal("n1", second.value, TOKEN)


async def test_a_new_token_opens_the_same_orders_and_a_revoked_one_does_no_more() -> None:
    fleet, bus = await _fleet()
    fleet.decide(START)
    for told, opens in ((_token(), True), (_revoked(), False)):
        fleet.fold([told])
        await fleet.settle(())
        await fleet.write()
        entry = await bus.kv_get(BUCKET, "n1")
        assert entry is not None
        assert (seals.tokens_of(entry.value) == {"a1"}) == opens


async def test_what_no_fleet_wrote_is_written_over_whatever_it_says() -> None:
    fleet, bus = await _fleet()
    fleet.fold([_token()])
    lie = msgspec.json.encode(Desired(epoch=9, position=99_999))
    for forged in (lie, b"{}\n" + lie, b'{"a1":"0"}\n' + lie, b"+OK", b""):
        entry = await bus.kv_get(BUCKET, "n1")
        await bus.kv_put(BUCKET, "n1", forged, entry.revision if entry is not None else 0)
        await fleet._ask_again()
        fleet.decide(START)
        await fleet.write()
        entry = await bus.kv_get(BUCKET, "n1")
        assert entry is not None
        seals.unseal("n1", entry.value, TOKEN)
