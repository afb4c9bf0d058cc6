"""What fleet writes to nodes: nothing before it is current, nothing older than what is there."""

import datetime as dt
from pathlib import Path

import msgspec

from ebbtide.chassis.bus import Bus
from ebbtide.chassis.context import Context
from ebbtide.contracts import subjects
from ebbtide.contracts.envelope import Append
from ebbtide.contracts.events import NodeJoined
from ebbtide.contracts.ids import NodeNumber
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.eventlog.reader import Reader
from ebbtide.fleet.desired import desired
from ebbtide.fleet.inbox import Inbox, Stale
from ebbtide.fleet.model import Picture
from ebbtide.fleet.shell import Fleet
from ebbtide.testing.builders import START, VirtualClock, job_name, registration
from ebbtide.testing.bus import MemoryServer
from ebbtide.testing.logbook import decided, unit

KEY = (1, job_name(1), 1)
STALE = Stale(key=KEY, round=1)
BUCKET = subjects.desired_bucket("main")


async def _fleet() -> tuple[Fleet, Bus]:
    """Make a fleet that has folded one node and has not decided yet."""
    clock, bus = VirtualClock(), MemoryServer().connect()
    log = MemoryLog(clock)
    said = registration("n1")
    body = NodeJoined(
        node=NodeNumber(1),
        name=said.node,
        pool=said.pool,
        address=said.address,
        boot=said.boot,
        capacity=said.capacity,
    )
    await log.append(decided(unit(Append(stream="node-1", body=body)), read_to=await log.head()))
    await bus.ensure_bucket(BUCKET)
    fleet = Fleet(Context("main", log, Reader(log), bus, clock, Path(), "", {}))
    fleet.fold(await log.read(0, 10))
    return fleet, bus


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
    asked = desired(Picture(), Inbox(stale={NodeNumber(1): {KEY: STALE}}), NodeNumber(1), START)
    newer = msgspec.json.encode(msgspec.structs.replace(asked, epoch=1, position=99))
    await bus.kv_put(BUCKET, "n1", newer, 0)
    fleet.decide(START + dt.timedelta(seconds=1))
    await fleet.write()
    entry = await bus.kv_get(BUCKET, "n1")
    assert entry is not None
    assert entry.value == newer
