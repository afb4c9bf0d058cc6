"""The log, in memory and in Postgres, for the suites that ask both the same."""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from ebbtide.eventlog.entries import OnCommit
from ebbtide.eventlog.log import Log
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.eventlog.migrate import migrate
from ebbtide.eventlog.postgres import PostgresLog
from ebbtide.testing.builders import VirtualClock
from ebbtide.testing.logbook import empty
from ebbtide.testing.servers import apart, fresh_database


class MemoryHouse:
    """One log in memory; all its clients are the same object."""

    def __init__(self) -> None:
        self._log = MemoryLog(VirtualClock())

    async def open(self, on_commit: OnCommit | None = None) -> Log:
        self._log.on_commit = on_commit
        return self._log

    async def damage_newest_snapshot(self, service: str) -> None:
        kept = self._log._snapshots[service]
        kept[0] = type(kept[0])(kept[0].snapshot, b"other")

    async def close(self) -> None:
        await self._log.close()


class PostgresHouse:
    """One database; each client has connections of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._logs: list[PostgresLog] = []

    async def open(self, on_commit: OnCommit | None = None) -> Log:
        log = await PostgresLog.connect(self._url, on_commit)
        self._logs.append(log)
        return log

    async def damage_newest_snapshot(self, service: str) -> None:
        connection = await asyncpg.connect(self._url)
        await connection.execute(
            "UPDATE log.snapshots SET body = 'x' WHERE service = $1 AND position ="
            " (SELECT max(position) FROM log.snapshots WHERE service = $1)",
            service,
        )
        await connection.close()

    async def close(self) -> None:
        for log in self._logs:
            await log.close()


LogHouse = MemoryHouse | PostgresHouse


@pytest.fixture(scope="session")
def log_url(postgres_url: str) -> Iterator[str]:
    """Address of a database with a log, for suites that empty it: making one takes far longer."""
    with fresh_database(postgres_url) as url:
        apart(lambda: migrate(url))
        yield url


@pytest.fixture(params=["memory", "postgres"])
async def house(request: pytest.FixtureRequest) -> AsyncIterator[LogHouse]:
    """Where one empty log lives, for clients to be opened on it."""
    if request.param == "memory":
        made: LogHouse = MemoryHouse()
    else:
        url = request.getfixturevalue("log_url")
        await empty(url)
        made = PostgresHouse(url)
    yield made
    await made.close()


@pytest.fixture
async def log(house: LogHouse) -> Log:
    """A client of an empty log."""
    return await house.open()
