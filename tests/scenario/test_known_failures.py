"""Failures that other platforms are known for, each with the one right outcome."""

from typing import TypeVar

import pytest

from ebbtide.contracts.events import (
    AttemptEnded,
    AttemptStopRequested,
    GangPlaced,
    JobFailed,
    JobPlaced,
    JobRestarting,
    WorkerEnded,
    WorkerStarted,
)
from ebbtide.contracts.ids import JobId
from ebbtide.contracts.outcomes import EndCause, Outcome
from ebbtide.testing.agents import LEASE_S
from ebbtide.testing.builders import registration, spec
from ebbtide.testing.stage import Stage

Kind = TypeVar("Kind")
SEEDS = range(8)
LOST_S = 3 * LEASE_S


def _said(stage: Stage, kind: type[Kind], job: JobId | None = None) -> list[Kind]:
    found = [one.body for one in stage.events if isinstance(one.body, kind)]
    return [body for body in found if job in (None, getattr(body, "job", None))]


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_lost_node_that_was_noticed_by_a_cycle_that_crashed_is_still_acted_on(
    seed: int,
) -> None:
    stage = Stage(registration("n1"), registration("n2"), seed=seed)
    job = await stage.submit(spec(cpu="4", when_cut_off="stop"))
    await stage.rest()
    here = stage.world.nodes[stage.job(job).placement.places[0].node].name
    stage.agents[here].connected = False
    for _ in range(int(LOST_S)):
        await stage.pass_time(1)
        for name in ("fleet", "recovery", "scheduler"):
            stage.players[name].crash()
    assert (stage.job(job).running, stage.job(job).attempt) == (True, 2)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_command_whose_node_died_did_not_complete(seed: int) -> None:
    stage = Stage(registration("n1"), registration("n2"), seed=seed)
    job = await stage.submit(spec(cpu="4", when_cut_off="stop"))
    await stage.rest()
    here = stage.world.nodes[stage.job(job).placement.places[0].node].name
    stage.agents[here].connected = False
    await stage.pass_time(LOST_S, step_s=1)
    assert _said(stage, AttemptEnded, job)[0].outcome is Outcome.LOST
    assert [one.cause for one in _said(stage, WorkerEnded, job)] == [EndCause.LOST]
    assert "job.succeeded" not in stage.story(job)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_job_that_ended_while_everybody_was_away_has_succeeded_and_runs_no_more(
    seed: int,
) -> None:
    """Its node has other work by then; the agent kept the end and says it."""
    stage = Stage(registration("n1"), seed=seed)
    job = await stage.submit(spec(cpu="2", when_cut_off="run"))
    await stage.rest()
    stage.agents["n1"].connected = False
    stage.agents["n1"].finish(job)
    for player in stage.players.values():
        player.crash()
    await stage.pass_time(LEASE_S / 3, step_s=1)
    stage.lose_inbox()
    stage.agents["n1"].connected = True
    other = await stage.submit(spec(cpu="2"))
    await stage.pass_time(2)
    assert "job.succeeded" in stage.story(job)
    assert len(_said(stage, JobPlaced, job)) == 1
    assert stage.job(other).running


@pytest.mark.parametrize("seed", SEEDS)
async def test_finished_jobs_stay_finished_when_everything_is_started_anew(seed: int) -> None:
    stage = Stage(registration("n1"), seed=seed)
    well, ill = await stage.submit(spec(cpu="1")), await stage.submit(spec(cpu="1"))
    await stage.rest()
    stage.agents["n1"].finish(well)
    stage.agents["n1"].finish(ill, status=2 << 8)
    await stage.pass_time(2)
    stage.checks.finish()
    before = len(stage.events)
    for player in stage.players.values():
        player.crash()
    stage.lose_inbox()
    await stage.pass_time(30, step_s=3)
    assert len(stage.events) == before
    assert len(_said(stage, JobFailed, ill)) == 1


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_start_that_is_refused_gives_its_places_back_and_the_next_job_starts(
    seed: int,
) -> None:
    stage = Stage(registration("n1"), seed=seed)
    agent = stage.agents["n1"]
    refused = await stage.submit(spec(cpu="4"))
    waiting = await stage.submit(spec(cpu="4"))
    agent.refuses = lambda attempt: attempt.job == refused
    await stage.pass_time(2)
    (failed,) = _said(stage, JobFailed, refused)
    assert failed.code == "job.not_restartable"
    assert stage.job(refused) is None, "it holds nothing"
    assert stage.job(waiting).running


@pytest.mark.parametrize("seed", range(24))
async def test_a_crash_between_asking_for_a_start_and_recording_it_starts_once(seed: int) -> None:
    stage = Stage(registration("n1"), seed=seed, lagging=True)
    job = await stage.submit(spec())
    for turn in range(60):
        await stage.step()
        if turn % 5 == seed % 5:
            list(stage.players.values())[(turn + seed) % 6].crash()
        if turn % 7 == seed % 7:
            stage.lose_inbox()
    await stage.rest()
    assert len(_said(stage, GangPlaced, job)) == len(_said(stage, WorkerStarted, job)) == 1
    assert stage.job(job).running


@pytest.mark.parametrize("seed", SEEDS)
async def test_eight_planners_with_stale_views_agree_and_use_the_one_place_once(seed: int) -> None:
    stage = Stage(registration("n1"), seed=seed, lagging=True)
    for number in range(3, 9):
        stage.players.update(stage._cast(f"·{number}"))
    jobs = [await stage.submit(spec(cpu="4")) for _ in range(8)]
    await stage.rest()
    running = [job for job in jobs if stage.job(job).running]
    assert len(running) == 1
    for _ in jobs[1:]:
        (job,) = [job for job in jobs if stage.job(job) and stage.job(job).running]
        stage.agents["n1"].finish(job)
        await stage.rest()
    assert all(len(_said(stage, GangPlaced, job)) == 1 for job in jobs)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_stop_during_a_decision_stands_and_the_stopped_job_is_not_started(
    seed: int,
) -> None:
    """A planner that decided on an older view loses its unit, and nothing else."""
    stage = Stage(registration("n1"), seed=seed, lagging=True)
    first, second = await stage.submit(spec(cpu="1")), await stage.submit(spec(cpu="1"))
    for _ in range(seed):
        await stage.step()
    await stage.stop(first)
    await stage.rest()
    assert "job.stopped" in stage.story(first)
    assert not [key for key in stage.agents["n1"].running() if key[1] == first]
    assert stage.job(second).running
    assert not _said(stage, JobRestarting)
    assert all(one.reason == "stop_requested" for one in _said(stage, AttemptStopRequested))
