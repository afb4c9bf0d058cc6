"""Fixtures: a node whose keeper and agent run."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.integration.agent.rig import Rig, end_sitters

from ebbtide.testing.bus import MemoryServer


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_sitters(tmp_path / "state")


@pytest.fixture
async def rig(folder: Path) -> AsyncIterator[Rig]:
    """A node whose keeper and agent run."""
    made = Rig(folder, MemoryServer())
    await made.fleet.open()
    made.keeper.start()
    made.start_agent()
    try:
        yield made
    finally:
        await made.stop_agent()
        made.keeper.kill()
        await made.fleet.bus.close()
