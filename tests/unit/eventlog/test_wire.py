"""Events on the bus."""

import msgspec
import pytest

from ebbtide.contracts import upcasts
from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.events import JobQueued, Place
from ebbtide.contracts.events.pool import GangPlaced
from ebbtide.contracts.ids import JobId, NodeNumber, PlacementId, PoolName, QuotaName
from ebbtide.contracts.upcasts import UnknownEvent
from ebbtide.eventlog import wire
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.testing.builders import VirtualClock, job_name
from ebbtide.testing.logbook import decided, say, unit


@pytest.fixture
async def recorded() -> Recorded:
    log = MemoryLog(VirtualClock())
    await log.append(decided(unit(say("a", actor="jörg"))))
    return (await log.read(0, 1))[0]


def test_an_event_comes_back_as_it_went(recorded: Recorded) -> None:
    assert wire.decode(wire.encode(recorded)) == recorded


def test_a_body_with_parts_comes_back_as_it_went(recorded: Recorded) -> None:
    body = GangPlaced(
        job=job_name(1),
        attempt=1,
        placement=PlacementId("p"),
        pool=PoolName("default"),
        quota=QuotaName("default"),
        charge="in_quota",
        places=(Place(node=NodeNumber(3), devices=5),),
        total={"cpu": 4000},
    )
    placed = msgspec.structs.replace(recorded, body=body)
    assert wire.decode(wire.encode(placed)) == placed


def test_fields_of_a_later_release_are_ignored(recorded: Recorded) -> None:
    payload = msgspec.json.decode(wire.encode(recorded))
    payload["later"] = payload["body"]["later"] = 1
    assert wire.decode(msgspec.json.encode(payload)) == recorded


class _Retired(msgspec.Struct, frozen=True, kw_only=True, tag="job.queued@0"):
    name: str


def test_a_retired_body_becomes_a_live_event(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    def upcast(old: _Retired) -> JobQueued:
        return JobQueued(job=JobId(old.name), quota=QuotaName("default"))

    monkeypatch.setitem(upcasts.UPCASTS, "job.queued@0", (_Retired, upcast))
    payload = msgspec.json.decode(wire.encode(recorded))
    payload["body"] = {"type": "job.queued@0", "name": "a"}
    assert wire.decode(msgspec.json.encode(payload)) == recorded


def test_an_event_of_a_later_release_is_named(recorded: Recorded) -> None:
    payload = msgspec.json.decode(wire.encode(recorded))
    payload["body"]["type"] = "job.levitated"
    with pytest.raises(UnknownEvent, match=r"job\.levitated"):
        wire.decode(msgspec.json.encode(payload))


@pytest.mark.parametrize("payload", [b"", b"{}", b"\xff", b'{"body": {}}'])
def test_what_is_no_event_is_refused(payload: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        wire.decode(payload)
