"""A door for the command and the SDK to ask."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ebbtide.chassis.clock import SystemClock
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.testing.door import RunningDoor


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RunningDoor]:
    """A door on a log in memory."""
    door = RunningDoor(MemoryLog(SystemClock()), tmp_path, "")
    await door.start()
    yield door
    await door.stop()
