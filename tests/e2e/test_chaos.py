"""Every process killed or frozen, alone and in pairs, and servers away, under 50 running jobs.

No worker notices, none runs twice at once, and when it is over every job ends and the log holds
every promise. For `make test-long`; ``EBB_SEED`` chooses the pairs.
"""

import itertools
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.e2e.conftest import LEASE_S, Platform, running, wait_for

from ebbtide.allinone.plan import SERVICES
from ebbtide.contracts.errors import EbbtideError
from ebbtide.contracts.events import WorkerEnded, WorkerStarted
from ebbtide.contracts.http import FINAL_PHASES
from ebbtide.testing.checks import check_log

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

NODES = 4
JOBS = 50
SEED = int(os.environ.get("EBB_SEED", "1"))
PAIRS = 8
FROZEN_S = LEASE_S / 3
AWAY_S = 20.0
"""How long a server is away. Agents need NATS once a lease, so it may be away for part of one."""
PARTS = (
    *SERVICES,
    "nats",
    "postgres",
    *(f"{kind}-node-{number}" for kind in ("agent", "keeper") for number in range(1, NODES + 1)),
)
WORKER = """
import fcntl, os, sys, time
folder = sys.argv[1]
name = f"{folder}/{os.environ['EBB_JOB']}-{os.environ['RANK']}"
lock = open(name, "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open(f"{folder}/twice", "a").write(name + "\\n")
while not os.path.exists(f"{folder}/leave"):
    time.sleep(0.2)
"""


class Scene(NamedTuple):
    """A platform under load: its jobs, and the folder in which its workers meet."""

    platform: Platform
    folder: Path
    jobs: list[str]

    def workers(self) -> dict[tuple[str, int], int]:
        """Give the pid of every worker that runs, as the log knows them."""
        found: dict[tuple[str, int], int] = {}
        for one in self.platform.events():
            if isinstance(one.body, WorkerStarted):
                found[one.body.job, one.body.worker] = one.body.pid
            elif isinstance(one.body, WorkerEnded):
                found.pop((one.body.job, one.body.worker), None)
        return found

    def settle(self) -> None:
        """Wait until every part runs and the platform does what it is asked for."""
        wait_for(lambda: all(_lives(self.platform, part) for part in PARTS), "every part runs")
        wait_for(self._ready, f"{NODES} ready nodes", 3 * LEASE_S)
        job = self.platform.ebb("submit", "--name", "probe", "--json", "--", "true")
        wait_for(lambda: _phase(self.platform, json.loads(job)["id"]) == "succeeded", "a new job")

    def _ready(self) -> bool:
        try:
            nodes = self.platform.client.nodes()
        except EbbtideError:
            return False
        return sum(node.reachability == "ready" for node in nodes) == NODES

    def unhurt(self, before: dict[tuple[str, int], int]) -> None:
        """Check that the workers of before run on, each as the same process, and none twice."""
        gone = [key for key, pid in before.items() if not Path(f"/proc/{pid}").exists()]
        assert not gone, f"workers ended: {gone}"
        assert self.workers() == before
        assert not (self.folder / "twice").exists(), (self.folder / "twice").read_text()


def _lives(platform: Platform, part: str) -> bool:
    try:
        os.kill(platform.pid(part), 0)
    except (OSError, ValueError):
        return False
    return True


def _phase(platform: Platform, job: str) -> str:
    try:
        return platform.client.get(job).phase
    except EbbtideError:
        return ""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Have 50 jobs run, a fifth of them gangs; when all is over every one must end well."""
    folder = tmp_path_factory.mktemp("meet")
    with running("--split", "--nodes", str(NODES), "--capacity", "cpu=20,memory=20Gi") as platform:
        platform.wait_for_nodes(NODES)
        jobs = [_submit(platform, folder, number) for number in range(JOBS)]
        made = Scene(platform, folder, jobs)
        total = JOBS + JOBS // 5
        wait_for(lambda: len(made.workers()) == total, f"{total} running workers", 120)
        yield made
        (folder / "leave").touch()
        wait_for(
            lambda: all(_phase(platform, job) in FINAL_PHASES for job in jobs), "all ends", 180
        )
        assert {_phase(platform, job) for job in jobs} == {"succeeded"}
        assert not (folder / "twice").exists()
        check_log(platform.events())


def _submit(platform: Platform, folder: Path, number: int) -> str:
    cut_off = "stop" if number % 2 else "run"
    job = {
        "name": f"chaos-{number}",
        "when_cut_off": cut_off,
        "command": ["python3", "-S", "-c", WORKER, str(folder)],
        "roles": {
            "worker": {
                "replicas": 2 if number % 5 == 0 else 1,
                "resources": {"cpu": "1", "memory": "64Mi"},
            }
        },
    }
    file = folder / f"job-{number}.json"
    file.write_text(json.dumps(job))
    return str(json.loads(platform.ebb("submit", str(file), "--json"))["id"])


@pytest.mark.parametrize("part", PARTS)
def test_kill_9_of_a_part_hurts_no_worker(scene: Scene, part: str) -> None:
    before = scene.workers()
    scene.platform.kill(part)
    scene.settle()
    scene.unhurt(before)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_freezes_for_a_third_of_a_lease_hurts_no_worker(
    scene: Scene, part: str
) -> None:
    before = scene.workers()
    pid = scene.platform.pid(part)
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(FROZEN_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    scene.settle()
    scene.unhurt(before)


@pytest.mark.parametrize(
    "pair", random.Random(SEED).sample(list(itertools.combinations(PARTS, 2)), PAIRS), ids="+".join
)
def test_kill_9_of_two_parts_at_once_hurts_no_worker(scene: Scene, pair: tuple[str, str]) -> None:
    before = scene.workers()
    for part in pair:
        scene.platform.kill(part)
    scene.settle()
    scene.unhurt(before)


@pytest.mark.parametrize(
    ("servers", "away_s"),
    [
        (("postgres",), AWAY_S),
        (("nats",), FROZEN_S),
        (("nats", "postgres"), FROZEN_S),
        (SERVICES, 1.5 * LEASE_S),
    ],
    ids=lambda value: "+".join(value[:2]) if isinstance(value, tuple) else f"{value:g}s",
)
def test_parts_that_are_away_for_a_while_hurt_no_worker(
    scene: Scene, servers: tuple[str, ...], away_s: float
) -> None:
    """They are killed while nobody can start them again; services even for more than a lease."""
    before = scene.workers()
    scene.platform.kill("supervisor", signal.SIGSTOP)
    try:
        for server in servers:
            scene.platform.kill(server)
        time.sleep(away_s)
    finally:
        scene.platform.kill("supervisor", signal.SIGCONT)
    scene.settle()
    scene.unhurt(before)
