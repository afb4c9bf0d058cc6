"""One job's path through all services: from submit to its end, whatever happens on the way."""

import pytest

from ebbtide.contracts.events import AttemptEnded, JobRejected, JobRestarting, tag_of
from ebbtide.contracts.outcomes import KeepAll, Outcome
from ebbtide.testing.agents import LEASE_S, SimulatedAgent
from ebbtide.testing.builders import registration, spec
from ebbtide.testing.stage import Stage

KILLED = 9
SEEDS = range(8)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_job_runs_from_submit_to_success(seed: int) -> None:
    stage = Stage(registration("n1"), seed=seed)
    job = await stage.submit(spec())
    await stage.rest()
    stage.agents["n1"].finish(job)
    await stage.rest()
    assert stage.story(job) == [
        "job.submitted",
        "job.queued",
        "pool.gang_placed",
        "job.placed",
        "worker.started",
        "attempt.running",
        "worker.ended",
        "attempt.ended",
        *sorted(["job.succeeded", "pool.gang_released"], key=stage.story(job).index),
    ]
    stage.checks.finish()


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_gang_over_two_nodes_meets_at_the_port_of_worker_0(seed: int) -> None:
    stage = Stage(registration("n1"), registration("n2"), seed=seed)
    job = await stage.submit(spec(workers=2, cpu="3"))
    await stage.rest()
    one = stage.job(job)
    assert one is not None
    assert one.running
    assert one.placement is not None
    assert len({place.node for place in one.placement.places}) == 2


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_killed_worker_ends_the_rest_and_the_gang_restarts_on_its_places(seed: int) -> None:
    stage = Stage(registration("n1"), registration("n2"), seed=seed)
    job = await stage.submit(spec(workers=2, cpu="3"))
    await stage.rest()
    placement = stage.job(job).placement
    for agent in stage.agents.values():
        agent.finish(job, status=KILLED, worker=1)
    await stage.rest()
    ended = next(one.body for one in stage.events if isinstance(one.body, AttemptEnded))
    restarting = next(one.body for one in stage.events if isinstance(one.body, JobRestarting))
    assert (ended.outcome, ended.first.worker, ended.following) == (Outcome.FAILED, 1, (0,))
    assert isinstance(restarting.keep, KeepAll)
    assert "worker 1" in restarting.why
    assert "SIGKILL" in restarting.why
    await stage.pass_time(1.5)
    assert stage.job(job).running
    assert stage.job(job).attempt == 2
    assert stage.job(job).placement is placement


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_job_that_keeps_failing_uses_its_restarts_and_fails(seed: int) -> None:
    stage = Stage(registration("n1"), seed=seed)
    stage.agents["n1"].lives = lambda _attempt, _worker: (0.1, 256)
    job = await stage.submit(spec(restart={"max_restarts": 2}))
    await stage.pass_time(10)
    story = stage.story(job)
    assert story.count("attempt.ended") == 3
    assert "job.failed" in story
    stage.checks.finish()


@pytest.mark.parametrize("seed", SEEDS)
async def test_stopping_a_waiting_job_needs_no_places(seed: int) -> None:
    stage = Stage(seed=seed)
    job = await stage.submit(spec())
    await stage.rest()
    await stage.stop(job)
    await stage.rest()
    assert stage.story(job) == ["job.submitted", "job.queued", "job.stop_requested", "job.stopped"]


@pytest.mark.parametrize("seed", SEEDS)
async def test_stopping_a_running_job_ends_its_workers_and_returns_its_places(seed: int) -> None:
    stage = Stage(registration("n1"), seed=seed)
    job = await stage.submit(spec())
    await stage.rest()
    await stage.stop(job)
    await stage.rest()
    assert "job.stopped" in stage.story(job)
    assert not stage.agents["n1"].running()
    stage.checks.finish()


@pytest.mark.parametrize("seed", range(40))
async def test_a_stop_that_races_with_placement_wins_or_loses_as_a_whole(seed: int) -> None:
    stage = Stage(registration("n1"), seed=seed)
    job = await stage.submit(spec())
    for _ in range(seed % 5):
        await stage._act(stage._random.choice(list(stage.players.values())))
    await stage.stop(job)
    await stage.rest()
    assert "job.stopped" in stage.story(job)
    stage.checks.finish()


@pytest.mark.parametrize("seed", SEEDS)
async def test_higher_priority_goes_first_and_equal_ones_in_submit_order(seed: int) -> None:
    stage = Stage(registration("n1"), seed=seed)
    running = await stage.submit(spec(cpu="4"))
    await stage.rest()
    late, urgent = [await stage.submit(spec(cpu="4", priority=p)) for p in (5, 9)]
    await stage.rest()
    order = []
    for _ in range(3):
        order += [key[1] for key in stage.agents["n1"].running()]
        stage.agents["n1"].finish(order[-1])
        await stage.rest()
    assert order == [running, urgent, late]


async def test_a_job_past_every_node_is_refused_with_the_numbers() -> None:
    stage = Stage(registration("n1"))
    await stage.rest()
    job = await stage.submit(spec(cpu="5"))
    await stage.rest()
    rejected = next(one.body for one in stage.events if isinstance(one.body, JobRejected))
    assert rejected.job == job
    assert rejected.code == "placement.worker_too_large"
    assert "cpu 5" in rejected.detail
    assert "cpu 1" in rejected.detail


async def test_a_job_waits_for_nodes_on_an_empty_platform_and_starts_when_one_comes() -> None:
    stage = Stage()
    job = await stage.submit(spec())
    await stage.rest()
    assert stage.story(job) == ["job.submitted", "job.queued"]
    stage.agents["n1"] = SimulatedAgent(registration("n1"), stage.clock)
    await stage.rest()
    assert stage.job(job).running


async def test_lending_is_refused_by_a_code_until_quotas_lend() -> None:
    stage = Stage(registration("n1"))
    await stage.submit(spec(idle="acceptable"))
    await stage.rest()
    rejected = next(one.body for one in stage.events if isinstance(one.body, JobRejected))
    assert rejected.code == "quota.idle_unsupported"


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_rebooted_node_fences_what_ran_there_and_the_job_goes_on(seed: int) -> None:
    stage = Stage(registration("n1"), seed=seed)
    job = await stage.submit(spec())
    await stage.rest()
    stage.agents["n1"] = SimulatedAgent(registration("n1", boot="boot-2"), stage.clock)
    await stage.pass_time(2)
    assert stage.job(job).attempt == 2
    assert stage.job(job).running
    assert stage.job(job).restarts == 0


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_silent_node_is_lost_and_its_stop_jobs_go_elsewhere(seed: int) -> None:
    stage = Stage(registration("n1"), registration("n2"), seed=seed)
    job = await stage.submit(spec(cpu="4", when_cut_off="stop"))
    await stage.rest()
    first = stage.job(job).placement.places[0].node
    name = stage.world.nodes[first].name
    stage.agents[name].connected = False
    await stage.pass_time(LEASE_S + 6)
    one = stage.job(job)
    assert (one.attempt, one.running, one.restarts) == (2, True, 0)
    assert one.placement.places[0].node != first
    assert not stage.agents[name].running()


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_silent_node_keeps_its_run_jobs_until_it_speaks_again(seed: int) -> None:
    stage = Stage(registration("n1"), registration("n2"), seed=seed)
    job = await stage.submit(spec(cpu="4"))
    await stage.rest()
    name = stage.world.nodes[stage.job(job).placement.places[0].node].name
    stage.agents[name].connected = False
    await stage.pass_time(3 * LEASE_S)
    assert stage.job(job).attempt == 1
    stage.agents[name].finish(job)
    stage.agents[name].connected = True
    await stage.pass_time(LEASE_S)
    assert "job.succeeded" in stage.story(job)
    assert "node.returned" in [tag_of(one.body) for one in stage.events]
