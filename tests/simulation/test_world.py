"""Random worlds from a seed: jobs, failures, stops, cut-off nodes, crashed services.

Every event passes the checks, and when the faults stop every job comes to its end. A failing seed
is run again by ``EBB_SEED=<seed> pytest tests/simulation``.
"""

import os
import random

import pytest

from ebbtide.contracts.agents import CheckpointReport
from ebbtide.contracts.job_spec import JobSpec
from ebbtide.model import fit
from ebbtide.testing.agents import LEASE_S
from ebbtide.testing.builders import registration, spec
from ebbtide.testing.stage import Stage

SEED = os.environ.get("EBB_SEED", "")
SEEDS = 200
LONG_BATCHES, LONG_BATCH = 100, 50
STEPS = 30
FINAL = ("job.succeeded", "job.failed", "job.stopped", "job.rejected")
EXITS = (0, 0, 0, 256, 9, 127 << 8)


def _spec(dice: random.Random) -> JobSpec:
    return spec(
        workers=dice.choice((1, 1, 2, 3)),
        cpu=dice.choice(("500m", "1", "2", "4")),
        priority=dice.randint(1, 9),
        when_cut_off=dice.choice(("stop", "run")),
        restart={"max_restarts": dice.randint(0, 3)},
    )


def _stage(seed: int, dice: random.Random) -> Stage:
    names = [f"n{number}" for number in range(1, dice.randint(2, 4) + 1)]
    stage = Stage(
        *(registration(name) for name in names),
        seed=seed,
        lagging=dice.random() < 0.7,
        twins=dice.random() < 0.3,
    )
    for agent in stage.agents.values():
        agent.lives = lambda attempt, worker: (
            random.Random(f"{seed} {attempt.job} {attempt.attempt} {worker}").uniform(0.1, 20),
            random.Random(f"{seed} {attempt.job} {attempt.attempt}").choice(EXITS),
        )
    return stage


def _checkpoint(stage: Stage, dice: random.Random) -> None:
    """Have a worker of a live attempt, or one that the log is past, report a checkpoint."""
    jobs = [one for one in stage.world.jobs.values() if one.placement is not None]
    if not jobs:
        return
    one = dice.choice(jobs)
    attempt = max(1, one.attempt - dice.choice((0, 0, 1)))
    step = dice.randint(1, 50)
    report = CheckpointReport(
        job=one.id,
        epoch=1,
        attempt=attempt,
        round=1,
        worker=0,
        step=step,
        folder=f"step-{step}.attempt-{attempt}",
        digest="",
        bytes=1,
    )
    node = stage.world.nodes[one.placement.places[0].node].name
    stage.reports[f"{one.id}-{dice.random()}"] = (node, report)


async def _fault(stage: Stage, dice: random.Random) -> None:
    player = dice.choice(list(stage.players.values()))
    agent = dice.choice(list(stage.agents.values()))
    match dice.randrange(7):
        case 0:
            player.crash()
        case 1:
            player.snapshot()
        case 2:
            stage.lose_inbox()
        case 3:
            agent.connected = not agent.connected
        case 4 if stage.world.jobs:
            await stage.stop(dice.choice(list(stage.world.jobs)))
        case 5:
            await stage.pass_time(dice.uniform(0, 1.5 * LEASE_S), step_s=2)
        case _:
            _checkpoint(stage, dice)


async def _come_to_rest(stage: Stage) -> None:
    """Let all jobs end; those that wait for more nodes than there are are stopped."""
    for _ in range(60):
        if not stage.world.jobs:
            return
        if not any(one.stage != "waiting" for one in stage.world.jobs.values()):
            for name in list(stage.world.jobs):
                if not fit.gang_fits_empty(stage.world.jobs[name].spec, stage.world.nodes.values()):
                    await stage.stop(name)
        await stage.pass_time(30, step_s=3)


async def run_world(seed: int) -> None:
    """Live one random world to the end of all its jobs.

    Raises:
        PromiseBroken: an event, or the end, breaks a promise.
    """
    dice = random.Random(seed)
    stage = _stage(seed, dice)
    await stage.rest()
    jobs = []
    for _ in range(STEPS):
        if dice.random() < 0.5:
            jobs.append(await stage.submit(_spec(dice)))
        for _ in range(dice.randrange(6)):
            await stage.step()
        await _fault(stage, dice)
    for agent in stage.agents.values():
        agent.connected = True
    await _come_to_rest(stage)
    stage.checks.finish()
    assert all(any(end in stage.story(job) for end in FINAL) for job in jobs)


@pytest.mark.parametrize("seed", [int(SEED)] if SEED else range(SEEDS))
async def test_whatever_happens_every_job_ends_and_no_promise_is_broken(seed: int) -> None:
    await run_world(seed)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("batch", range(LONG_BATCHES))
async def test_thousands_of_worlds_break_no_promise(batch: int) -> None:
    for seed in range(SEEDS + batch * LONG_BATCH, SEEDS + (batch + 1) * LONG_BATCH):
        try:
            await run_world(seed)
        except Exception as error:
            error.add_note(f"run it again by EBB_SEED={seed} pytest tests/simulation")
            raise
