"""The supervisor keeps parts running, adopts what outlived a former one, and ends all in order."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ebbtide.allinone.child import read_identity, start_time
from ebbtide.allinone.home import Home, free_port
from ebbtide.allinone.supervisor import bound_logs
from ebbtide.testing.servers import wait_until_dead

STAGE = Path(__file__).with_name("stage.py")
NODE_PARTS = ("keeper-node-1", "agent-node-1")
BOUND_PARTS = ("server", "service")


def eventually(holds: Callable[[], bool], timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.01)


class Stage:
    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)
        self.port = free_port()
        self.supervisors: list[subprocess.Popen[str]] = []

    def start(self, mode: str = "answers", log: Path | None = None) -> subprocess.Popen[str]:
        with (log or self.home.folder.parent / "supervisor.log").open("a") as log_file:
            started = subprocess.Popen(
                [sys.executable, STAGE, self.home.folder, str(self.port), mode],
                stdout=subprocess.PIPE,
                stderr=log_file,
                text=True,
            )
        self.supervisors.append(started)
        return started

    def start_ready(self, log: Path | None = None) -> subprocess.Popen[str]:
        started = self.start(log=log)
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        eventually(lambda: all(self.pid(name) for name in (*NODE_PARTS, *BOUND_PARTS)))
        return started

    def pid(self, name: str) -> int:
        identity = read_identity(self.home.pid_file(name))
        return identity.pid if identity else 0

    def said(self) -> list[str]:
        lines = (self.home.folder.parent / "supervisor.log").read_text().splitlines()
        facts = [json.loads(line) for line in lines]
        return [f"{fact['event']} {fact.get('part', '')}".strip() for fact in facts]

    def close(self) -> None:
        for supervisor in self.supervisors:
            supervisor.kill()
            supervisor.wait()
            if supervisor.stdout is not None:
                supervisor.stdout.close()
        for name in (*NODE_PARTS, *BOUND_PARTS):
            pid = self.pid(name)
            if pid:
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "home")
    yield made
    made.close()


def test_a_part_that_dies_is_started_again_at_once(stage: Stage) -> None:
    stage.start_ready()
    first = stage.pid("service")
    killed_at = time.monotonic()
    os.kill(first, signal.SIGKILL)
    eventually(lambda: stage.pid("service") not in (0, first))
    assert time.monotonic() - killed_at < 2.0


def test_a_second_supervisor_on_one_home_is_refused(stage: Stage) -> None:
    stage.start_ready()
    second = stage.start()
    assert second.wait(10) == 1


def test_a_killed_supervisor_takes_servers_and_services_with_it(stage: Stage) -> None:
    supervisor = stage.start_ready()
    pids = [stage.pid(name) for name in BOUND_PARTS]
    supervisor.kill()
    for pid in pids:
        wait_until_dead(pid)


def test_a_killed_supervisor_leaves_agents_and_keepers_to_the_next(stage: Stage) -> None:
    supervisor = stage.start_ready()
    pids = [stage.pid(name) for name in NODE_PARTS]
    supervisor.kill()
    supervisor.wait()
    stage.start_ready()
    assert [stage.pid(name) for name in NODE_PARTS] == pids


def test_an_adopted_part_that_dies_is_started_again(stage: Stage) -> None:
    supervisor = stage.start_ready()
    supervisor.kill()
    supervisor.wait()
    stage.start_ready()
    adopted = stage.pid("agent-node-1")
    os.kill(adopted, signal.SIGKILL)
    eventually(lambda: stage.pid("agent-node-1") not in (0, adopted))


def test_a_stop_ends_every_part(stage: Stage) -> None:
    supervisor = stage.start_ready()
    pids = [stage.pid(name) for name in (*NODE_PARTS, *BOUND_PARTS)]
    supervisor.terminate()
    assert supervisor.wait(10) == 0
    assert [start_time(pid) for pid in pids] == [None] * 4


def test_a_stop_goes_from_agents_to_servers(stage: Stage) -> None:
    supervisor = stage.start_ready()
    supervisor.terminate()
    supervisor.wait(10)
    stopped = [said.split()[1] for said in stage.said() if said.startswith("part.stopped")]
    assert stopped == ["agent-node-1", "keeper-node-1", "service", "server"]


def test_a_service_that_cannot_start_is_named_with_the_end_of_its_log(stage: Stage) -> None:
    supervisor = stage.start("breaks")
    assert supervisor.wait(20) == 5
    assert supervisor.stdout is not None
    said = supervisor.stdout.read()
    assert "service cannot start" in said
    assert "broken on purpose" in said


def test_a_failed_start_leaves_nothing_running(stage: Stage) -> None:
    stage.start("breaks").wait(20)
    assert not list(stage.home.run.glob("*.pid"))


def test_a_pid_file_of_another_process_is_not_believed(stage: Stage) -> None:
    stage.home.create()
    stage.home.pid_file("agent-node-1").write_text(
        json.dumps({"pid": os.getpid(), "start": 1, "boot": "another"})
    )
    stage.start_ready()
    assert stage.pid("agent-node-1") != os.getpid()


def test_a_long_log_is_cut_and_its_end_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    with log.open("ab") as writer:
        writer.write(b"old\n" * 1000 + b"newest\n")
        writer.flush()
        bound_logs(tmp_path, bytes_max=100)
        writer.write(b"after\n")
    assert log.read_bytes() == b"after\n"
    assert (tmp_path / "part.log.1").read_bytes().endswith(b"newest\n")


def test_a_part_whose_pid_cannot_be_written_down_is_started_again_until_it_can(
    stage: Stage,
) -> None:
    """As on a full disk: a part that nobody could find again must not run."""
    supervisor = stage.start_ready()
    in_the_way = stage.home.run / "server.tmp"
    in_the_way.mkdir()
    os.kill(stage.pid("server"), signal.SIGKILL)
    eventually(lambda: "part.not_started server" in stage.said())
    in_the_way.rmdir()
    eventually(lambda: stage.pid("server") > 0)
    assert supervisor.poll() is None


def test_a_supervisor_whose_log_takes_nothing_goes_on(stage: Stage) -> None:
    supervisor = stage.start_ready(log=Path("/dev/full"))
    before = stage.pid("server")
    os.kill(before, signal.SIGKILL)
    eventually(lambda: stage.pid("server") not in (0, before))
    assert supervisor.poll() is None
