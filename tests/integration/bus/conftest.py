"""Fixtures of tests that need a server which asks who may connect."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.bus.rig import Platform

from ebbtide.chassis.bus_nats import NatsBus


@pytest.fixture
async def platform(private_folder: Path) -> AsyncIterator[Platform]:
    platform = Platform(private_folder)
    await platform.start()
    yield platform
    await platform.close()


@pytest.fixture
async def agent(platform: Platform) -> NatsBus:
    return await platform.join()
