"""A door on each kind of log."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ebbtide.chassis.clock import SystemClock
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.eventlog.migrate import migrate
from ebbtide.eventlog.postgres import PostgresLog
from ebbtide.testing.door import RunningDoor


@pytest.fixture(params=["memory", "postgres"])
async def any_api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunningDoor]:
    """A door on each kind of log."""
    url = ""
    log: MemoryLog | PostgresLog = MemoryLog(SystemClock())
    if request.param == "postgres":
        url = request.getfixturevalue("database_url")
        await migrate(url)
        log = await PostgresLog.connect(url)
    door = RunningDoor(log, tmp_path, url)
    await door.start()
    yield door
    await door.stop()
    await log.close()


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RunningDoor]:
    """A door on a log in memory."""
    door = RunningDoor(MemoryLog(SystemClock()), tmp_path, "")
    await door.start()
    yield door
    await door.stop()
