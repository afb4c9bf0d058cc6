"""When clients freeze, locks are held, connections are lost and servers killed: the log goes on."""

import asyncio
import os
import signal
import sys

import asyncpg
import pytest

from ebbtide.contracts.errors import Conflict, Unavailable
from ebbtide.eventlog import sql
from ebbtide.eventlog.connection import Lane
from ebbtide.eventlog.entries import entries_of
from ebbtide.eventlog.gather import columns, waiting
from ebbtide.eventlog.migrate import migrate
from ebbtide.eventlog.postgres import LevelTooHighError, PostgresLog
from ebbtide.eventlog.reader import Reader
from ebbtide.testing.logbook import Listening, decided, end_sessions, fill, is_waiting, say, unit
from ebbtide.testing.servers import PostgresServer
from ebbtide.testing.waiting import wait_until

QUERIES = sql.load("ebbtide.eventlog")
TIMEOUTS_S = 4.0
"""Longer than lock_timeout (2 s), and than idle_in_transaction_session_timeout (1 s) twice."""


# 5. No frozen client can hold the log.


async def test_a_client_frozen_inside_its_transaction_loses_the_log(
    log: PostgresLog, admin: asyncpg.Connection
) -> None:
    batch = decided(unit(say("frozen")))
    arguments = columns([waiting(batch, entries_of(batch), asyncio.Future())])
    await admin.execute("BEGIN")
    await admin.fetchrow(QUERIES["append"], *arguments)
    async with asyncio.timeout(TIMEOUTS_S):
        await log.append(decided(unit(say("alive"))))
    assert [event.stream for event in await log.read(0, 10)] == ["alive"]


async def test_a_lock_on_the_head_that_nobody_releases_is_reported(
    log: PostgresLog, admin: asyncpg.Connection
) -> None:
    await admin.execute("BEGIN")
    await admin.execute("SELECT * FROM log.head FOR UPDATE")
    async with asyncio.timeout(TIMEOUTS_S):
        with pytest.raises(Unavailable, match="lock timeout"):
            await log.append(decided(unit(say("a"))))


async def test_appends_go_on_once_a_lock_on_the_head_is_gone(
    log: PostgresLog, admin: asyncpg.Connection
) -> None:
    await admin.execute("BEGIN")
    await admin.execute("SELECT * FROM log.head FOR UPDATE")
    waiting_append = asyncio.create_task(log.append(decided(unit(say("a")))))
    await wait_until(lambda: is_waiting(admin), "the append waits")
    await admin.execute("ROLLBACK")
    assert (await waiting_append).positions == ((1, 1),)


BUSY = """
import asyncio, sys
from ebbtide.eventlog.postgres import PostgresLog
from ebbtide.testing.logbook import decided, say, unit

async def main():
    log = await PostgresLog.connect(sys.argv[1])
    while True:
        await log.append(decided(*[unit(say("busy"))] * 20))

asyncio.run(main())
"""


async def test_a_process_frozen_while_it_appends_does_not_hold_the_log(
    log: PostgresLog, url: str
) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", BUSY, url)
    try:
        for turn in range(8):
            head = (await log.head()).number

            async def moved(head: int = head) -> bool:
                return (await log.head()).number > head

            await wait_until(moved, "the other process appends")
            os.kill(process.pid, signal.SIGSTOP)
            async with asyncio.timeout(TIMEOUTS_S):
                await log.append(decided(unit(say(f"alive-{turn}"))))
            os.kill(process.pid, signal.SIGCONT)
    finally:
        process.kill()
        await process.wait()


# Lost connections.


async def test_an_append_whose_connection_ends_is_unavailable(
    log: PostgresLog, admin: asyncpg.Connection
) -> None:
    await admin.execute("BEGIN")
    await admin.execute("SELECT * FROM log.head FOR UPDATE")
    answers = asyncio.gather(
        *(log.append(decided(unit(say(str(n))))) for n in range(3)), return_exceptions=True
    )
    await wait_until(lambda: is_waiting(admin), "the append waits")
    await end_sessions(admin)
    assert [type(answer) for answer in await answers] == [Unavailable] * 3


async def test_a_log_connects_again_on_its_next_use(
    log: PostgresLog, admin: asyncpg.Connection
) -> None:
    await log.append(decided(unit(say("a"))))
    await end_sessions(admin)

    async def works() -> bool:
        try:
            await log.append(decided(unit(say("b"))))
        except Unavailable:
            return False
        return len(await log.read(0, 10)) >= 2

    await wait_until(works, "it is back")


async def test_a_log_whose_level_was_raised_does_not_connect_again(
    log: PostgresLog, admin: asyncpg.Connection
) -> None:
    await admin.execute("UPDATE log.head SET level = 99")
    await end_sessions(admin)

    async def refused() -> bool:
        try:
            await log.append(decided(unit(say("a"))))
        except Unavailable:
            return False
        except LevelTooHighError:
            return True
        return False

    await wait_until(refused, "it is refused")


class Wire:
    """A cable to a server that can swallow the server's answers and then be cut."""

    def __init__(self, url: str) -> None:
        address, _, self._database = url.rpartition("/")
        self._credentials, _, host = address.rpartition("@")
        self._port = int(host.rpartition(":")[2])
        self._writers: list[asyncio.StreamWriter] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self.swallows = False
        self.swallowed = asyncio.Event()

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"{self._credentials}@127.0.0.1:{port}/{self._database}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        if self._pumps:
            await asyncio.wait(self._pumps)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, to_server]
        pumps = (self._pump(reader, to_server, False), self._pump(from_server, writer, True))
        self._pumps |= {asyncio.create_task(pump) for pump in pumps}

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, is_answer: bool
    ) -> None:
        try:
            while chunk := await source.read(65_536):
                if is_answer and self.swallows:
                    self.swallowed.set()
                else:
                    target.write(chunk)
        finally:
            target.close()


async def test_an_append_whose_answer_was_lost_is_not_said_twice(url: str) -> None:
    """The caller is told that it is unknown; its revision then tells it."""
    batch = decided(unit(say("a")), service="quota", revision=0)
    wire = Wire(url)
    async with wire as through:
        log = await PostgresLog.connect(through)
        await log.append(decided(unit(say("warm"))))
        wire.swallows = True
        lost = asyncio.create_task(log.append(batch))
        await wire.swallowed.wait()
        wire.swallows = False
        wire.cut()
        with pytest.raises(Unavailable):
            await lost
        with pytest.raises(Conflict):
            await log.append(batch)
        assert [event.stream for event in await log.read(0, 10)] == ["warm", "a"]
        await log.close()


async def test_a_reader_goes_on_after_the_server_was_killed(
    private_postgres: PostgresServer,
) -> None:
    await migrate(private_postgres.url)
    log = await PostgresLog.connect(private_postgres.url)
    reader, listener = Reader(log, poll_s=0.05), Listening()
    reader.attach(listener, after=0)
    run = asyncio.create_task(reader.run())
    await fill(log, 10)
    await reader.reached(10, 10)
    await asyncio.to_thread(private_postgres.kill)
    with pytest.raises(Unavailable):
        await log.append(decided(unit(say("a"))))
    await asyncio.to_thread(private_postgres.start)

    async def appended() -> bool:
        try:
            await fill(log, 10)
        except Unavailable:
            return False
        return True

    await wait_until(appended, "the log is back")
    await wait_until(lambda: len(listener.events) == 20, "the reader goes on")
    assert listener.positions == list(range(1, 21))
    run.cancel()
    await asyncio.wait({run})
    await log.close()


async def test_a_log_put_back_to_an_older_state_ends_the_reader(
    log: PostgresLog, admin: asyncpg.Connection
) -> None:
    reader = Reader(log, poll_s=0.02)
    reader.attach(Listening(), after=0)
    run = asyncio.create_task(reader.run())
    await fill(log, 10)
    await reader.reached(10, 10)
    await admin.execute(
        "DELETE FROM log.events WHERE position > 5; UPDATE log.head SET position = 5"
    )
    await asyncio.wait({run}, timeout=10)
    assert type(run.exception()).__name__ == "StaleEpoch"


async def test_a_connection_that_the_driver_lost_track_of_is_not_used_again(
    database_url: str,
) -> None:
    async def wedged(_: asyncpg.Connection) -> None:
        raise asyncpg.InternalClientError("another operation is in progress")

    async def number(connection: asyncpg.Connection) -> int:
        return int(await connection.fetchval("SELECT pg_backend_pid()"))

    lane = Lane(database_url)
    before = await lane.call(number)
    with pytest.raises(Unavailable):
        await lane.call(wedged)
    assert await lane.call(number) != before
    await lane.close()
