"""A platform of real processes, started and asked through the ``ebb`` command."""

import asyncio
import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ebbtide.allinone.home import Home
from ebbtide.allinone.plan import Plan
from ebbtide.client.client import Client
from ebbtide.contracts.envelope import Recorded
from ebbtide.eventlog.postgres import PostgresLog
from ebbtide.testing.checks import check_log

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "digits_xgboost"
LEASE_S = 18
"""A tenth of the lease of a single NATS server."""
ENVIRON = {**os.environ, "EBB_LEASE_S": str(LEASE_S), "PYTHONDONTWRITEBYTECODE": ""}


def wait_for(holds: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
    """Return once ``holds()`` is true; say what was not."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.05)


class Platform:
    """One home: its commands, its client, its processes and its log."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environ = {**ENVIRON, "EBB_HOME": str(home)}

    def ebb(self, *words: str, timeout_s: float = 120, check: bool = True) -> str:
        """Run the command and give what it printed."""
        done = self.try_ebb(*words, timeout_s=timeout_s)
        if check:
            assert done.returncode == 0, f"ebb {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def try_ebb(
        self, *words: str, timeout_s: float = 120, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the command, whatever it answers."""
        return subprocess.run(
            [sys.executable, "-m", "ebbtide.cli", *words],
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            cwd=cwd,
        )

    @functools.cached_property
    def client(self) -> Client:
        """Give the client of this test, made when the platform is up."""
        return Client.from_environment(self.environ)

    def wait_for_nodes(self, count: int) -> None:
        """Wait until so many nodes are ready."""

        def ready() -> bool:
            nodes = self.client.nodes()
            return sum(node.reachability == "ready" for node in nodes) >= count

        wait_for(ready, f"{count} ready nodes")

    def pid(self, name: str) -> int:
        """Give the process id of a part of the platform: control, nats, postgres, agent-n1 …"""
        return int(json.loads((self.home / "run" / f"{name}.pid").read_text())["pid"])

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal a part of the platform."""
        os.kill(self.pid(name), number)

    def events(self) -> list[Recorded]:
        """Read the whole log out of Postgres."""
        home = Home(self.home)
        kept = home.load()
        assert kept is not None
        return asyncio.run(_read_all(Plan(home, kept, {}).database_url))

    def story(self, job: str) -> list[Recorded]:
        """Give what the log says of a job."""
        return [one for one in self.events() if getattr(one.body, "job", None) == job]

    def workers(self, job: str) -> dict[int, tuple[str, int]]:
        """Give node and pid of the running workers of a job, as the log knows them."""
        from ebbtide.contracts.events import WorkerEnded, WorkerStarted

        running: dict[int, tuple[str, int]] = {}
        for one in self.story(job):
            if isinstance(one.body, WorkerStarted):
                running[one.body.worker] = (one.body.node, one.body.pid)
            elif isinstance(one.body, WorkerEnded):
                running.pop(one.body.worker, None)
        return running


async def _read_all(url: str) -> list[Recorded]:
    log = await PostgresLog.connect(url)
    try:
        events: list[Recorded] = []
        while page := await log.read(len(events), 2_000):
            events += page
        return events
    finally:
        await log.close()


@contextlib.contextmanager
def running(*words: str, checked: bool = True) -> Iterator[Platform]:
    """Have a platform in a fresh home; afterwards its whole log must pass the checks."""
    parent = Path(tempfile.mkdtemp(prefix="ebb-e2e-", dir="/tmp"))  # Postgres's user must get in
    parent.chmod(0o711)
    platform = Platform(parent / "home")
    try:
        platform.ebb("up", *words)
        yield platform
        if checked:
            check_log(platform.events(), ended=False)
    finally:
        platform.client.close()
        platform.try_ebb("down", "--force")
        keep = os.environ.get("EBB_TEST_KEEP")
        if not keep:
            shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    """A platform of four nodes for the tests of one file."""
    with running("--nodes", "4", "--capacity", "cpu=2,memory=3Gi") as started:
        started.wait_for_nodes(4)
        yield started
