"""The lease: what ends with it and what does not, whoever is alive."""

import msgspec
from tests.integration.agent.rig import NODE, Rig, shell

from ebbtide.contracts import subjects
from ebbtide.contracts.agents import Lease, WorkerState
from ebbtide.contracts.ids import NodeName
from ebbtide.contracts.outcomes import EndCause
from ebbtide.testing.waiting import wait_until

SHORT_S = 1.5
BUCKET = subjects.lease_bucket("main")


async def lease(rig: Rig) -> Lease:
    entry = await rig.fleet.bus.kv_get(BUCKET, NODE)
    assert entry is not None
    return msgspec.json.decode(entry.value, type=Lease)


async def use_short_lease(rig: Rig) -> None:
    await rig.stop_agent()
    rig.lease_s = SHORT_S
    rig.start_agent()


async def test_the_lease_is_renewed(rig: Rig) -> None:
    await use_short_lease(rig)

    async def renewed() -> bool:
        entry = await rig.fleet.bus.kv_get(BUCKET, NODE)
        return entry is not None and msgspec.json.decode(entry.value, type=Lease).count >= 4

    await wait_until(renewed, "it was renewed")


async def test_workers_that_stop_end_with_the_lease_when_all_that_renews_it_is_dead(
    rig: Rig,
) -> None:
    await use_short_lease(rig)
    await rig.fleet.desire(shell("sleep 600", when_cut_off="stop"), shell("sleep 600", number=2))
    await rig.fleet.running()
    await rig.fleet.running(number=2)
    await rig.stop_agent()
    rig.keeper.kill()
    await wait_until(
        lambda: b"\nE lease " in (rig.state / "lives").read_bytes(), "its sitter ended it"
    )
    rig.keeper.start()
    rig.start_agent()
    assert (await rig.fleet.ended()).cause is EndCause.LEASE
    assert rig.fleet.state(number=2) is WorkerState.RUNNING


async def test_workers_outlive_the_agent_within_the_lease(rig: Rig) -> None:
    await rig.fleet.desire(shell("sleep 600", when_cut_off="stop"))
    before = await rig.fleet.running()
    await rig.restart_agent()
    heard = len(rig.fleet.heard)
    await wait_until(lambda: len(rig.fleet.heard) > heard, "the next agent has reported")
    assert (await rig.fleet.running()).pid == before.pid


async def test_a_lease_that_was_taken_away_ends_what_ends_with_it_and_is_taken_anew(
    rig: Rig,
) -> None:
    await use_short_lease(rig)
    await rig.fleet.desire(shell("sleep 600", when_cut_off="stop"), shell("sleep 600", number=2))
    await rig.fleet.running()
    await rig.fleet.running(number=2)
    entry = await rig.fleet.bus.kv_get(BUCKET, NODE)
    assert entry is not None
    taken = Lease(node=NodeName(NODE), boot="", holder="x", count=0, lease_ms=0, taken=True)
    await rig.fleet.bus.kv_put(BUCKET, NODE, msgspec.json.encode(taken), entry.revision)
    assert (await rig.fleet.ended()).cause is EndCause.LEASE

    async def is_ours() -> bool:
        return not (await lease(rig)).taken

    await wait_until(is_ours, "the agent has it again")
    assert rig.fleet.state(number=2) is WorkerState.RUNNING


async def test_nothing_that_ends_with_the_lease_starts_without_one(rig: Rig) -> None:
    await rig.stop_agent()
    (rig.state / "lease").unlink()
    rig.start_agent()
    rig.server.hub.buckets.pop(BUCKET)
    await rig.fleet.desire(shell("true", when_cut_off="stop"), shell("true", number=2))
    await rig.fleet.ended(number=2)
    assert rig.fleet.state() is None
    await rig.fleet.bus.ensure_bucket(BUCKET)
    assert (await rig.fleet.ended()).status == 0
