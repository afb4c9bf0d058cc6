"""A platform comes up, survives what is done to its supervisor, and goes down without a trace."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ebbtide.testing.servers import server_folder, wait_until_dead

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
STUBBORN = ["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"]
SLEEPER = ["sleep", "300"]


class Place:
    """One home and the verbs used on it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environ = {k: v for k, v in os.environ.items() if k not in ("EBB_URL", "EBB_TOKEN")}
        self.environ |= {"EBB_HOME": str(home), "PYTHONDONTWRITEBYTECODE": ""}

    def ebb(self, *words: str, code: int | None = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "ebbtide.cli", *words],
            check=False,
            capture_output=True,
            text=True,
            env=self.environ,
            timeout=120,
        )
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def status(self) -> dict[str, object]:
        facts: dict[str, object] = json.loads(self.ebb("status", "--json", code=None))
        return facts

    def pid(self, name: str) -> int:
        return int(json.loads((self.home / "run" / f"{name}.pid").read_text())["pid"])

    def kill(self, name: str) -> None:
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        wait_until_dead(pid)

    def run_job(self, command: list[str]) -> str:
        job = self.ebb("submit", "--name", "test", "--cpu", "500m", "--", *command).split()[0]
        eventually(lambda: self.phase(job) == "running")
        return job

    def phase(self, job: str) -> str:
        return str(json.loads(self.ebb("show", "--json", job))["phase"])


def eventually(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.05)


@pytest.fixture
def place() -> Iterator[Place]:
    with server_folder() as folder:
        made = Place(folder / "a home")
        yield made
        made.ebb("down", "--force", code=None)


def test_up_returns_when_the_platform_answers(place: Place) -> None:
    place.ebb("up")
    assert place.status()["answers"] is True


def test_up_twice_says_that_it_runs_already(place: Place) -> None:
    place.ebb("up")
    assert "runs already" in place.ebb("up")


def test_up_with_other_nodes_while_it_runs_is_refused_with_what_to_do(place: Place) -> None:
    place.ebb("up")
    assert "ebb down" in place.ebb("up", "--nodes", "3", code=5)


def test_status_works_when_the_platform_was_never_started(place: Place) -> None:
    assert "ebb up" in place.ebb("status", code=5)


def test_down_leaves_no_process(place: Place) -> None:
    place.ebb("up", "--nodes", "2")
    processes = place.status()["processes"]
    assert isinstance(processes, dict)
    place.ebb("down")
    for pid in processes.values():
        wait_until_dead(pid, timeout_s=1.0)


def test_down_leaves_no_cgroup(place: Place) -> None:
    place.ebb("up")
    place.run_job(SLEEPER)
    noted = (place.home / "nodes" / "node-1" / "cgroups").read_text().splitlines()
    place.ebb("down", "--grace-s", "0.2")
    assert not [base for base in noted if Path(base).exists()]


def test_down_twice_is_harmless(place: Place) -> None:
    place.ebb("up")
    place.ebb("down")
    assert "was not running" in place.ebb("down")


def test_a_killed_supervisor_is_followed_by_one_that_adopts_the_agents(place: Place) -> None:
    place.ebb("up")
    job = place.run_job(SLEEPER)
    agent = place.pid("agent-node-1")
    place.kill("supervisor")
    place.ebb("up")
    assert place.pid("agent-node-1") == agent
    assert place.phase(job) == "running"


def test_jobs_are_remembered_when_everything_is_killed(place: Place) -> None:
    place.ebb("up")
    job = place.run_job(SLEEPER)
    for name in ("supervisor", "agent-node-1", "keeper-node-1"):
        place.kill(name)
    place.ebb("up")
    eventually(lambda: place.phase(job) == "running")


def test_workers_go_on_over_a_restart_when_asked_for(place: Place) -> None:
    place.ebb("up")
    job = place.run_job(SLEEPER)
    assert "1 worker left running" in place.ebb("down", "--keep-workers")
    place.ebb("up")
    eventually(lambda: place.phase(job) == "running")
    assert json.loads(place.ebb("show", "--json", job))["attempt"] == 1


def test_a_worker_that_does_not_heed_is_killed_after_the_grace_time(place: Place) -> None:
    place.ebb("up")
    place.run_job(STUBBORN)
    assert "1 worker killed" in place.ebb("down", "--grace-s", "0.2")


def test_two_homes_do_not_disturb_each_other(place: Place) -> None:
    other = Place(place.home.with_name("another home"))
    place.ebb("up")
    other.ebb("up")
    other.ebb("down")
    assert place.status()["answers"] is True


def test_split_services_run_a_job_to_its_end(place: Place) -> None:
    place.ebb("up", "--split")
    assert "scheduler" in str(place.status()["processes"])
    place.ebb("submit", "--wait", "--name", "split", "--cpu", "500m", "--", "true")


def test_secrets_are_in_no_argument_of_any_process(place: Place) -> None:
    place.ebb("up")
    secrets = [path.read_text().strip() for path in (place.home / "secrets").iterdir()]
    processes = place.status()["processes"]
    assert isinstance(processes, dict)
    arguments = "".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in processes.values())
    assert not [secret for secret in secrets if secret in arguments]
