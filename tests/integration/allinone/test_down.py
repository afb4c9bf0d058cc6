"""What ``down`` does about workers, on a node without a platform around it."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.agent.rig import Rig, end_sitters, shell

from ebbtide.allinone.home import Home
from ebbtide.testing.bus import MemoryServer
from ebbtide.testing.waiting import wait_until


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path, MemoryServer())
    await made.fleet.open()
    made.state.mkdir()
    made.keeper.start()
    made.start_agent()
    yield made
    await made.stop_agent()
    end_sitters(made.state)
    made.keeper.kill()


async def test_a_worker_that_froze_its_sitter_is_ended_when_asked(rig: Rig, tmp_path: Path) -> None:
    await rig.fleet.desire(shell("kill -STOP $PPID; echo up; sleep 600"))
    await wait_until(lambda: rig.has_line("up"), "the sitter is frozen")
    await rig.stop_agent()
    home = Home(tmp_path / "home")
    home.create()
    (home.nodes / "n1").symlink_to(rig.state)
    command = [sys.executable, "-m", "ebbtide.allinone.down", "--home", str(home.folder)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
    facts = json.loads(done.stdout)
    assert (facts["workers_ended"], facts["workers_killed"]) == (1, 0)
