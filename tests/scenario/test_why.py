"""The cause that is told is the cause: lift it, and the job runs or another cause is told."""

import random

import pytest

from ebbtide.contracts.ids import JobId
from ebbtide.contracts.waits import Why
from ebbtide.scheduler.explain import explain
from ebbtide.testing.builders import registration, spec
from ebbtide.testing.stage import Stage

SEEDS = range(30)


def _why(stage: Stage, job: JobId) -> Why:
    why = explain(stage.players["scheduler"].picture, job, stage.clock.now())
    assert why is not None, f"{job} does not wait: {stage.job(job)}"
    return why


async def test_without_nodes_there_are_none() -> None:
    stage = Stage()
    job = await stage.submit(spec())
    await stage.rest()
    assert _why(stage, job).code == "nodes.none"


async def test_nodes_that_take_no_work_are_counted() -> None:
    stage = Stage(registration("n1"), registration("n2"))
    await stage.rest()
    job = await stage.submit(spec(cpu="4"))
    for name in ("n1", "n2"):
        await stage.change(name, "move")
    await stage.rest()
    why = _why(stage, job)
    assert (why.code, "2 cordoned" in why.detail) == ("nodes.none", True)


async def test_a_worker_larger_than_every_node_that_takes_work_is_told_by_how_much() -> None:
    stage = Stage(registration("n1", cpu=8000), registration("n2", cpu=4000))
    await stage.rest()
    await stage.change("n1", "drain")
    await stage.rest()
    job = await stage.submit(spec(cpu="6"))
    await stage.rest()
    why = _why(stage, job)
    assert (why.code, "lacks cpu 2" in why.detail) == ("nodes.too_small", True)


async def test_who_is_first_waits_for_room_and_who_follows_is_behind() -> None:
    stage = Stage(registration("n1"))
    await stage.submit(spec(cpu="3"))
    await stage.rest()
    jobs = [await stage.submit(spec(cpu=cpu)) for cpu in ("3", "1")]
    await stage.rest()
    told = [_why(stage, job) for job in jobs]
    assert [(one.code, one.position) for one in told] == [("nodes.full", 1), ("queue.behind", 2)]
    assert "cpu 2 more must become free" in told[0].detail


async def test_a_failed_job_waits_for_its_back_off() -> None:
    stage = Stage(registration("n1"), registration("n2"))
    await stage.rest()
    job = await stage.submit(spec(cpu="4", restart={"max_restarts": 3, "backoff_s": 50}))
    await stage.rest()
    here = stage.world.nodes[stage.job(job).placement.places[0].node].name
    await stage.change(here, "cordon")
    await stage.rest()
    stage.agents[here].finish(job, status=256)
    await stage.rest()
    why = _why(stage, job)
    assert (why.code, why.until) == ("backoff", stage.job(job).not_before)


async def test_a_job_that_keeps_its_places_waits_for_its_back_off_too() -> None:
    stage = Stage(registration("n1"))
    await stage.rest()
    job = await stage.submit(spec(restart={"max_restarts": 3, "backoff_s": 50}))
    await stage.rest()
    stage.agents["n1"].finish(job, status=256)
    await stage.rest()
    assert stage.job(job).is_live
    why = _why(stage, job)
    assert (why.code, why.until) == ("backoff", stage.job(job).not_before)


async def test_a_job_on_a_lost_node_that_may_still_run_there_waits_for_a_fence() -> None:
    stage = Stage(registration("n1"), registration("n2"))
    await stage.rest()
    job = await stage.submit(spec(when_cut_off="run"))
    await stage.rest()
    here = stage.world.nodes[stage.job(job).placement.places[0].node].name
    stage.agents[here].connected = False
    told: list[Why | None] = []
    while stage.world.node_named(here).reachability != "lost":
        await stage.pass_time(1, step_s=1)
        told.append(explain(stage.players["scheduler"].picture, job, stage.clock.now()))
    assert {why.code for why in told if why is not None} == {"nodes.away"}
    assert any(why is not None and "suspect" in why.detail for why in told)
    assert f"ebb node fence {here}" in _why(stage, job).detail


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_waiting_job_has_one_cause_and_room_lifts_the_first_ones(seed: int) -> None:
    dice = random.Random(seed)
    stage = Stage(*(registration(f"n{n}") for n in range(dice.randint(1, 3))), seed=seed)
    await stage.rest()
    jobs = [
        await stage.submit(
            spec(
                workers=dice.randint(1, 3),
                cpu=str(dice.randint(1, 4)),
                priority=dice.randint(1, 9),
            )
        )
        for _ in range(8)
    ]
    await stage.rest()
    alive = {job: one for job in jobs if (one := stage.job(job)) is not None}
    waiting = [job for job, one in alive.items() if one.stage == "waiting"]
    causes = {job: _why(stage, job).code for job in waiting}
    assert set(causes.values()) <= {"nodes.too_few", "nodes.full", "queue.behind"}
    first = [job for job in waiting if causes[job] == "nodes.full"]
    assert len(first) <= 1, "one job blocks"
    for job in alive.keys() - set(waiting):
        for agent in stage.agents.values():
            agent.finish(job)
    await stage.rest()
    for job in first:
        one = stage.job(job)
        assert one is None or one.stage != "waiting"
