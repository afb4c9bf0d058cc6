"""What node health does to leases: it takes what it has judged, and nothing that came meanwhile."""

from pathlib import Path

import msgspec

from ebbtide.chassis.context import Context
from ebbtide.contracts import subjects
from ebbtide.contracts.agents import Lease
from ebbtide.contracts.envelope import Append
from ebbtide.contracts.events import NodeJoined
from ebbtide.contracts.ids import NodeName, NodeNumber
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.eventlog.reader import Reader
from ebbtide.node_health.policy import Limits
from ebbtide.node_health.shell import NodeHealth
from ebbtide.testing.builders import VirtualClock, recorded, registration
from ebbtide.testing.bus import MemoryServer
from ebbtide.testing.waiting import wait_until

BUCKET = subjects.lease_bucket("main")
LIMITS = Limits(lease_s=60, margin_s=6)


def _lease(count: int) -> bytes:
    lease = Lease(node=NodeName("n1"), boot="", holder="n1", count=count, lease_ms=60_000)
    return msgspec.json.encode(lease)


async def test_a_renewal_that_came_after_the_verdict_is_not_taken() -> None:
    clock, server = VirtualClock(), MemoryServer()
    bus, agent = server.connect("services"), server.connect("n1")
    log = MemoryLog(clock)
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
    first = await agent.kv_put(BUCKET, "n1", _lease(1), 0)
    health.decide(clock.now())
    await wait_until(lambda: health._sight.revision(said.node) == first, "it is seen")
    for _ in range(6):
        clock.advance(11)
        health.decide(clock.now())
    second = await agent.kv_put(BUCKET, "n1", _lease(2), first)
    await wait_until(lambda: health._sight.revision(said.node) == second, "it is seen")
    await health.settle(())
    assert await agent.kv_put(BUCKET, "n1", _lease(3), second) > second
    await bus.close()
    await agent.close()
