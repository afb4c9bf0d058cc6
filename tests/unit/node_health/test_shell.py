"""What node health does to leases: it takes what it has judged, and nothing that came meanwhile."""

from pathlib import Path

import msgspec

from ebbtide.chassis.context import Context
from ebbtide.contracts import subjects
from ebbtide.contracts.agents import Lease
from ebbtide.contracts.envelope import Append
from ebbtide.contracts.events import NodeJoined, NodeLost, NodeReturned, NodeSuspected
from ebbtide.contracts.ids import NodeName, NodeNumber
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.eventlog.reader import Reader
from ebbtide.node_health.policy import Limits
from ebbtide.node_health.shell import NodeHealth
from ebbtide.testing.builders import VirtualClock, recorded, registration
from ebbtide.testing.bus import MemoryServer
from ebbtide.testing.waiting import wait_until

BUCKET = subjects.lease_bucket("main")
N1 = NodeName("n1")
LIMITS = Limits(lease_s=60, margin_s=6)


def _lease(count: int) -> bytes:
    lease = Lease(node=N1, boot="", holder="n1", count=count, lease_ms=60_000)
    return msgspec.json.encode(lease)


async def _health() -> tuple[NodeHealth, VirtualClock, MemoryServer]:
    """Make a service that knows one node and has begun to hear."""
    clock, server = VirtualClock(), MemoryServer()
    bus, log = server.connect("services"), MemoryLog(clock)
    health = NodeHealth(Context("main", log, Reader(log), bus, clock, Path(), "", {}), LIMITS)
    said = registration("n1")
    joined = NodeJoined(
        node=NodeNumber(1),
        name=said.node,
        pool=said.pool,
        address=said.address,
        boot=said.boot,
        capacity=said.capacity,
    )
    health.fold([recorded(Append(stream="node-1", body=joined))])
    await health.listen()
    return health, clock, server


def _wait(health: NodeHealth, clock: VirtualClock, seconds: int) -> list[type]:
    """Let time pass in steps in which it looks; give what it would say at the end."""
    said: list[type] = []
    for _ in range(seconds // 11):
        clock.advance(11)
        units = health.decide(clock.now()).units
        said = [type(append.body) for unit in units for append in unit.appends]
    return said


async def test_a_renewal_that_came_after_the_verdict_is_not_taken() -> None:
    health, clock, server = await _health()
    agent = server.connect("n1")
    first = await agent.kv_put(BUCKET, "n1", _lease(1), 0)
    health.decide(clock.now())
    await wait_until(lambda: health._sight.revision(N1) == first, "it is seen")
    _wait(health, clock, 66)
    second = await agent.kv_put(BUCKET, "n1", _lease(2), first)
    await wait_until(lambda: health._sight.revision(N1) == second, "it is seen")
    await health.settle(())
    assert await agent.kv_put(BUCKET, "n1", _lease(3), second) > second
    server.stop()


async def test_a_node_that_another_replica_saw_return_has_a_whole_lease_again() -> None:
    health, clock, server = await _health()
    _wait(health, clock, 88)
    await health.settle(())
    suspected = NodeSuspected(node=NodeNumber(1), why="")
    health.fold([recorded(Append(stream="node-1", body=suspected), 2)])
    assert _wait(health, clock, 66) == [NodeLost]
    returned = NodeReturned(node=NodeNumber(1))
    health.fold([recorded(Append(stream="node-1", body=returned), 3)])
    health.fold([recorded(Append(stream="node-1", body=suspected), 4)])
    assert health.decide(clock.now()).units == ()
    server.stop()


async def test_a_blind_service_judges_nobody() -> None:
    health, clock, server = await _health()
    assert _wait(health, clock, 55) == [NodeSuspected]
    server.stop()
    assert _wait(health, clock, 11) == []
