"""The relay as a process of its own, which hears of other processes' events from Postgres."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ebbtide.chassis.bus_nats import NatsBus
from ebbtide.contracts.errors import NotFound
from ebbtide.eventlog import migrate
from ebbtide.eventlog.postgres import PostgresLog
from ebbtide.testing.logbook import fill
from ebbtide.testing.waiting import wait_until


@asynccontextmanager
async def relay(environ: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ebbtide.relay", env=environ, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
async def log(database_url: str) -> AsyncIterator[PostgresLog]:
    await migrate.migrate(database_url)
    log = await PostgresLog.connect(database_url)
    yield log
    await log.close()


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    bus = await NatsBus.connect(nats_url, "test")
    yield bus
    await bus.close()


@pytest.fixture
def environ(database_url: str, nats_url: str, cell: str, tmp_path: Path) -> dict[str, str]:
    return {
        "EBB_CELL": cell,
        "EBB_DATABASE_URL": database_url,
        "EBB_NATS_URL": nats_url,
        "EBB_STORE": str(tmp_path),
    }


async def test_events_of_other_processes_are_told(
    log: PostgresLog, bus: NatsBus, cell: str, environ: dict[str, str]
) -> None:
    async with relay(environ):
        await told(log, bus, cell)
        position = await fill(log, 100)
        await wait_until(lambda: newest_is(bus, cell, position), "the newest event is told")


async def test_a_relay_that_was_killed_goes_on_where_it_was(
    log: PostgresLog, bus: NatsBus, cell: str, environ: dict[str, str]
) -> None:
    async with relay(environ) as process:
        await told(log, bus, cell)
        process.kill()
        await process.wait()
    position = await fill(log, 100)
    async with relay(environ):
        await wait_until(lambda: newest_is(bus, cell, position), "the newest event is told")
    assert await log.head() == (1, position)


async def test_a_relay_that_is_told_to_stop_ends_well(
    log: PostgresLog, bus: NatsBus, cell: str, environ: dict[str, str]
) -> None:
    async with relay(environ) as process:
        await told(log, bus, cell)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0


async def told(log: PostgresLog, bus: NatsBus, cell: str) -> None:
    """Append until an event is told: the relay runs."""

    async def is_told() -> bool:
        position = await fill(log, 1)
        try:
            await wait_until(lambda: newest_is(bus, cell, position), "told", timeout_s=0.3)
        except AssertionError:
            return False
        return True

    await wait_until(is_told, "the relay runs", timeout_s=30)


async def newest_is(bus: NatsBus, cell: str, position: int) -> bool:
    try:
        message = await bus.last(f"EVT_{cell}")
    except NotFound:
        return False
    return message is not None and message.sequence == position
