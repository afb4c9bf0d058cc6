"""Failures that other platforms are known for, on real processes, with the one right outcome."""

import concurrent.futures
import json
import signal
import threading
import time

import pytest
from tests.e2e.conftest import Platform, wait_for

from ebbtide.contracts.errors import EbbtideError
from ebbtide.contracts.events import AttemptEnded, JobSubmitted, WorkerStarted
from ebbtide.contracts.http import FINAL_PHASES

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

LINES = 1000
LAST_WORDS = (
    f"import os, sys\nfor n in range({LINES}): print('line', n)\n"
    "print('ValueError: the last word', file=sys.stderr)\nos.kill(os.getpid(), 9)"
)
SUBMITS = 200


def _submit(platform: Platform, *command: str) -> str:
    printed = platform.ebb("submit", "--name", "known", "--json", "--", *command)
    return str(json.loads(printed)["id"])


def _phase(platform: Platform, job: str) -> str:
    try:
        return platform.client.get(job).phase
    except EbbtideError:
        return ""


def test_the_last_words_before_a_kill_are_kept(platform: Platform) -> None:
    job = _submit(platform, "python3", "-c", LAST_WORDS)
    wait_for(lambda: _phase(platform, job) in FINAL_PHASES, "the end")
    said = platform.ebb("logs", job).splitlines()
    assert [line for line in said if line.startswith("line ")] == [
        f"line {number}" for number in range(LINES)
    ]
    assert said[-1] == "ValueError: the last word"
    ends = [one.body for one in platform.story(job) if isinstance(one.body, AttemptEnded)]
    assert ends[-1].log_bytes == (len("\n".join(said)) + 1,)


def test_a_kill_just_after_a_start_leaves_the_same_attempt_running(platform: Platform) -> None:
    job = _submit(platform, "sleep", "600")
    wait_for(lambda: platform.workers(job), "a running worker")
    before = platform.workers(job)
    platform.kill("control")
    wait_for(lambda: _phase(platform, job) == "running", "the job reads as running")
    assert platform.workers(job) == before
    starts = [one for one in platform.story(job) if isinstance(one.body, WorkerStarted)]
    assert len(starts) == 1
    platform.ebb("stop", job)


def test_each_submit_of_a_storm_during_a_restart_is_there_once_or_was_refused(
    platform: Platform,
) -> None:
    """The SDK asks again with the same id, so an answer that was lost makes no second job."""
    accepted: list[str] = []
    refused: list[str] = []
    lock = threading.Lock()

    def send(number: int) -> None:
        client = clients[number % len(clients)]
        try:
            job = client.submit({"name": f"storm-{number}", "command": ["true"]})
        except EbbtideError as error:
            with lock:
                refused.append(f"storm-{number}: {error}")
        else:
            with lock:
                accepted.append(job)

    from ebbtide.client.client import Client

    clients = [Client.from_environment(platform.environ) for _ in range(8)]
    with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
        waiting = [pool.submit(send, number) for number in range(SUBMITS)]
        wait_for(lambda: len(accepted) > SUBMITS // 10, "a tenth of the storm", 60)
        platform.kill("control", signal.SIGKILL)
        for one in waiting:
            one.result(timeout=120)
    for client in clients:
        client.close()
    names = [
        one.body.spec.name
        for one in platform.events()
        if isinstance(one.body, JobSubmitted) and one.body.spec.name.startswith("storm-")
    ]
    assert len(names) == len(set(names)), "none twice"
    assert len(accepted) + len(refused) == SUBMITS
    assert len(names) >= len(accepted)
    deadline = time.monotonic() + 60
    left = list(accepted)
    while left and time.monotonic() < deadline:
        left = [job for job in left if _phase(platform, job) != "succeeded"]
    assert not left
