"""The example, a real distributed training, on the real platform: undisturbed, hurt, attacked."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tests.e2e.conftest import EXAMPLE, LEASE_S, Platform, running, wait_for

from ebbtide.allinone.home import free_port
from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.events import (
    AttemptEnded,
    CheckpointCommitted,
    JobRestarting,
    WorkerEnded,
    WorkerStarted,
    tag_of,
)
from ebbtide.contracts.outcomes import EndCause

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SLOW = "0.15"
"""Seconds per round: long enough to hurt the run in its middle."""


def submit(platform: Platform, *words: str, sleep: str = SLOW) -> str:
    """Submit the example with slow rounds."""
    printed = platform.ebb("submit", str(EXAMPLE / "job.toml"), "--json", *words, "--",
                           "python", "train.py", "--round-sleep", sleep)  # fmt: skip
    return str(json.loads(printed)["id"])


def committed(platform: Platform, job: str) -> list[CheckpointCommitted]:
    """Give the checkpoints that the log holds for a job."""
    return [one.body for one in platform.story(job) if isinstance(one.body, CheckpointCommitted)]


def ended(platform: Platform, job: str, timeout_s: float = 120) -> str:
    """Wait for a job's end and give its phase."""
    return platform.client.wait(job, timeout_s=timeout_s).phase


class Result(NamedTuple):
    """What a job's training left: score, number of rounds, predictions on the test rows."""

    job: str
    accuracy: float
    rounds: int
    predictions: np.ndarray


def result(platform: Platform, job: str) -> Result:
    """Read what the training left."""
    folder = platform.home / "store" / "checkpoints" / job / "result"
    facts = json.loads((folder / "result.json").read_text())
    return Result(job, facts["accuracy"], facts["rounds"], np.load(folder / "predictions.npy"))


@pytest.fixture(scope="module")
def undisturbed(platform: Platform) -> Result:
    """The result of a run that nobody disturbed."""
    job = submit(platform, sleep="0")
    assert ended(platform, job) == "succeeded"
    return result(platform, job)


def assert_same(one: Result, other: Result) -> None:
    """Assert that two trainings ended with the same model."""
    assert one.rounds == other.rounds
    assert np.abs(one.predictions - other.predictions).max() <= 1e-6


def test_two_workers_train_and_the_log_tells_their_life(
    platform: Platform, undisturbed: Result
) -> None:
    assert undisturbed.accuracy >= 0.95
    printed = platform.ebb("logs", undisturbed.job, "--worker", "all")
    assert "accuracy" in printed
    tags = [tag_of(one.body) for one in platform.story(undisturbed.job)]
    assert tags[:4] == ["job.submitted", "job.queued", "pool.gang_placed", "job.placed"]
    assert "attempt.running" in tags
    assert tags.count("worker.ended") == 2
    assert "job.succeeded" in tags


def test_a_killed_worker_is_named_first_and_the_job_resumes_from_its_newest_checkpoint(
    platform: Platform, undisturbed: Result
) -> None:
    job = submit(platform)
    wait_for(lambda: committed(platform, job), "a first checkpoint")
    _, pid = platform.workers(job)[1]
    os.kill(pid, signal.SIGKILL)
    assert ended(platform, job) == "succeeded"
    story = platform.story(job)
    end = next(one for one in story if isinstance(one.body, AttemptEnded))
    assert isinstance(end.body, AttemptEnded)
    assert end.body.first is not None
    assert (end.body.first.worker, end.body.following) == (1, (0,))
    assert (end.body.first.cause, end.body.first.status) == (EndCause.SIGNALLED, signal.SIGKILL)
    steps = [
        one.body.step
        for one in story
        if isinstance(one.body, CheckpointCommitted) and one.position < end.position
    ]
    again = next(one.body for one in story if isinstance(one.body, JobRestarting))
    assert (again.attempt, again.resume_step) == (2, max(steps))
    words = platform.ebb("events", job)
    assert "worker 1" in words
    assert "SIGKILL" in words
    assert_same(result(platform, job), undisturbed)


@pytest.mark.parametrize("part", ["agent", "keeper", "control", "nats", "postgres"])
def test_kill_9_of_any_part_loses_nothing(
    platform: Platform, undisturbed: Result, part: str
) -> None:
    job = submit(platform, sleep="0.06")
    wait_for(lambda: committed(platform, job), "a first checkpoint")
    node = platform.workers(job)[1][0]
    platform.kill(f"{part}-{node}" if part in ("agent", "keeper") else part)
    wait_for(lambda: _final(platform, job) is not None, "the job's end", 120)
    assert _final(platform, job) == "succeeded"
    attempts = [one for one in platform.story(job) if isinstance(one.body, AttemptEnded)]
    assert len(attempts) == 1, "as if nothing had happened"
    assert_same(result(platform, job), undisturbed)


def _final(platform: Platform, job: str) -> str | None:
    """Give a job's final phase; None while it has none, or while nobody answers."""
    from ebbtide.contracts.errors import EbbtideError
    from ebbtide.contracts.http import FINAL_PHASES

    try:
        phase = platform.client.get(job).phase
    except EbbtideError:
        return None
    return phase if phase in FINAL_PHASES else None


def test_cut_off_workers_end_with_their_lease_and_the_next_attempt_starts_no_earlier(
    tmp_path: Path,
) -> None:
    """Agent and keeper of one node are killed and stay away; the supervisor is frozen meanwhile."""
    with running("--nodes", "2", "--capacity", "cpu=2,memory=3Gi") as platform:
        platform.wait_for_nodes(2)
        file = tmp_path / "job.json"
        file.write_text('{"name": "cut-off", "when_cut_off": "stop", "command": ["sleep", "600"]}')
        job = json.loads(platform.ebb("submit", str(file), "--json"))["id"]
        wait_for(lambda: platform.workers(job), "a running worker")
        node, pid = platform.workers(job)[0]
        platform.kill("supervisor", signal.SIGSTOP)
        try:
            platform.kill(f"agent-{node}")
            platform.kill(f"keeper-{node}")
            killed = time.time()
            wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the worker's end", 2 * LEASE_S)
            gone = time.time()
            assert gone - killed < LEASE_S + 3
            wait_for(lambda: _started(platform, job, 2), "the next attempt", 2 * LEASE_S)
        finally:
            platform.kill("supervisor", signal.SIGCONT)
        started = _started(platform, job, 2)
        assert started is not None
        assert started.at.timestamp() >= gone
        assert started.body.node != node
        ends = [one.body for one in platform.story(job) if isinstance(one.body, WorkerEnded)]
        assert ends[0].cause is EndCause.LOST
        platform.ebb("stop", job)


def _started(platform: Platform, job: str, attempt: int) -> Recorded | None:
    return next(
        (
            one
            for one in platform.story(job)
            if isinstance(one.body, WorkerStarted) and one.body.attempt == attempt
        ),
        None,
    )


def test_with_one_worker_missing_the_training_does_not_finish(tmp_path: Path) -> None:
    """Rank 0 of 2 waits at the rendezvous that it holds itself; nobody else comes."""
    environ = {
        **os.environ,
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "EBB_CHECKPOINTS": str(tmp_path),
    }
    alone = subprocess.Popen(
        [sys.executable, "train.py"],
        cwd=EXAMPLE,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            alone.wait(timeout=10)
    finally:
        alone.kill()
        alone.wait()
    assert not list(tmp_path.rglob("result.json"))
