"""A node whose network is cut: silence, not an error, between its agent and NATS.

The node joins from outside the platform, with a token of its own, through a relay of bytes that is
frozen to cut it off. A node on another machine would see the same.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.e2e.conftest import LEASE_S, Platform, running, wait_for

from ebbtide.allinone.home import Home
from ebbtide.allinone.plan import Plan, without_credentials
from ebbtide.contracts.events import WorkerEnded, WorkerStarted
from ebbtide.contracts.outcomes import EndCause

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

FAR = "far-1"
CABLE = """
import asyncio, sys

async def pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()

async def joined(reader, writer):
    far = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    await asyncio.gather(pump(reader, far[1]), pump(far[0], writer), return_exceptions=True)

async def main():
    server = await asyncio.start_server(joined, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


class Far(NamedTuple):
    """The platform, and the cable to a node outside it."""

    platform: Platform
    cable: subprocess.Popen[str]

    def cut(self) -> None:
        """Let nothing through, and say nothing about it."""
        self.cable.send_signal(signal.SIGSTOP)

    def mend(self) -> None:
        """Let everything through again."""
        self.cable.send_signal(signal.SIGCONT)


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    """A platform with one small node, and a larger one that joins from outside."""
    with running("--nodes", "1", "--capacity", "cpu=2,memory=2Gi") as platform:
        home = Home(platform.home)
        kept = home.load()
        assert kept is not None
        port = without_credentials(Plan(home, kept, {}).nats_url).rpartition(":")[2]
        cable = subprocess.Popen(
            [sys.executable, "-c", CABLE, port], stdout=subprocess.PIPE, text=True
        )
        assert cable.stdout is not None
        made = platform.ebb("token", "create", "agent", FAR).strip()
        environ = {
            **platform.environ,
            "EBB_AGENT_NODE": FAR,
            "EBB_AGENT_ADDRESS": "127.0.0.1",
            "EBB_AGENT_CAPACITY": "cpu=4,memory=4Gi",
            "EBB_AGENT_STATE": str(tmp_path / "state"),
            "EBB_AGENT_TOKEN": made,
            "EBB_NATS_URL": f"nats://127.0.0.1:{cable.stdout.readline().strip()}",
            "EBB_STORE": str(home.store),
            "EBB_CELL": kept.cell,
        }
        parts = [
            subprocess.Popen([sys.executable, "-m", module], env=environ)
            for module in ("ebbtide.agent.keeper", "ebbtide.agent")
        ]
        try:
            platform.wait_for_nodes(2)
            yield Far(platform, cable)
        finally:
            cable.send_signal(signal.SIGCONT)
            cable.kill()
            cable.communicate()
            for part in reversed(parts):
                part.kill()
                part.wait()


def _job_on_the_far_node(platform: Platform, tmp_path: Path, when_cut_off: str) -> tuple[str, int]:
    job = {
        "name": "far",
        "when_cut_off": when_cut_off,
        "command": ["sleep", "600"],
        "roles": {"worker": {"replicas": 1, "resources": {"cpu": "2", "memory": "1Gi"}}},
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    platform.ebb("node", "cordon", "node-1")
    name = str(json.loads(platform.ebb("submit", str(tmp_path / "job.json"), "--json"))["id"])
    wait_for(lambda: platform.workers(name), "a running worker")
    platform.ebb("node", "uncordon", "node-1")
    node, pid = platform.workers(name)[0]
    assert node == FAR
    return name, pid


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_cut_shorter_than_the_lease_is_noticed_by_nobody(far: Far, tmp_path: Path) -> None:
    job, pid = _job_on_the_far_node(far.platform, tmp_path, "stop")
    far.cut()
    time.sleep(LEASE_S / 2)
    far.mend()
    far.platform.wait_for_nodes(2)
    time.sleep(LEASE_S / 2)
    assert _lives(pid)
    assert far.platform.workers(job) == {0: (FAR, pid)}


def test_a_node_that_is_cut_off_for_long_ends_its_worker_before_another_starts(
    far: Far, tmp_path: Path
) -> None:
    job, pid = _job_on_the_far_node(far.platform, tmp_path, "stop")
    far.cut()
    wait_for(lambda: not _lives(pid), "the worker ends with its lease", 2 * LEASE_S)
    gone = time.time()
    wait_for(lambda: _starts(far.platform, job) == 2, "it runs elsewhere", 3 * LEASE_S)
    story = far.platform.story(job)
    again = [one for one in story if isinstance(one.body, WorkerStarted)][1]
    assert (again.body.node, again.at.timestamp() > gone) == ("node-1", True)
    ends = [one.body.cause for one in story if isinstance(one.body, WorkerEnded)]
    assert ends == [EndCause.LOST]
    far.mend()
    far.platform.wait_for_nodes(2)
    assert far.platform.workers(job)[0][0] == "node-1"


def test_a_fenced_nodes_worker_is_ended_when_the_node_comes_back(far: Far, tmp_path: Path) -> None:
    """Who vouched was wrong: the worker ran on. Its late word counts nothing, and it is ended."""
    job, pid = _job_on_the_far_node(far.platform, tmp_path, "run")
    far.cut()
    wait_for(lambda: _state(far.platform) == "lost", "the far node is lost", 3 * LEASE_S)
    assert _lives(pid), "a `run` job runs on"
    far.platform.ebb("node", "fence", FAR, "--yes", "--reason", "it burnt down")
    wait_for(lambda: _starts(far.platform, job) == 2, "it runs elsewhere")
    far.mend()
    far.platform.wait_for_nodes(2)
    wait_for(lambda: not _lives(pid), "the worker of before is ended")
    assert far.platform.workers(job)[0][0] == "node-1"
    os.kill(far.platform.workers(job)[0][1], 0)


def _starts(platform: Platform, job: str) -> int:
    return sum(isinstance(one.body, WorkerStarted) for one in platform.story(job))


def _state(platform: Platform) -> str:
    return platform.client.node(FAR).reachability
