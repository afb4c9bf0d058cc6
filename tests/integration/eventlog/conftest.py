"""A database with a log, a client of it, and somebody else's connection."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from ebbtide.eventlog.migrate import migrate
from ebbtide.eventlog.postgres import PostgresLog


@pytest.fixture
async def url(database_url: str) -> str:
    await migrate(database_url)
    return database_url


@pytest.fixture
async def log(url: str) -> AsyncIterator[PostgresLog]:
    log = await PostgresLog.connect(url)
    yield log
    await log.close()


@pytest.fixture
async def admin(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of somebody else, without any of our settings."""
    connection = await asyncpg.connect(url)
    yield connection
    connection.terminate()
