"""The log on a real Postgres: partitions, plans, levels, listening, leaving."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from ebbtide.contracts.envelope import Position
from ebbtide.contracts.errors import NotFound, Unavailable
from ebbtide.eventlog import postgres
from ebbtide.eventlog.postgres import LevelTooHighError, PostgresLog
from ebbtide.testing.logbook import decided, end_sessions, fill, is_waiting, positions, say, unit
from ebbtide.testing.waiting import wait_until

# Partitions and plans.


@pytest.fixture
async def parted(url: str) -> AsyncIterator[PostgresLog]:
    log = await PostgresLog.connect(url, partition_events=50)
    for _ in range(12):
        await log.append(decided(*[unit(say("a"))] * 100))
    yield log
    await log.close()


async def test_appends_cross_the_bounds_of_partitions(parted: PostgresLog) -> None:
    assert positions(await parted.read(0, 5_000)) == list(range(1, 1_201))


async def test_a_stream_is_read_over_the_bounds_of_partitions(parted: PostgresLog) -> None:
    assert [event.version for event in await parted.read_stream("a")] == list(range(1, 1_201))


async def test_partitions_are_made_ahead(parted: PostgresLog, admin: asyncpg.Connection) -> None:
    past = await admin.fetchval("SELECT max(past) FROM log.partitions")
    assert past > (await parted.head()).number + 1_000


async def test_several_processes_may_make_partitions_at_once(url: str) -> None:
    logs = await asyncio.gather(*(PostgresLog.connect(url, partition_events=50) for _ in range(5)))
    await asyncio.gather(*(fill(log, 300) for log in logs))
    assert (await logs[0].head()).number == 1_500
    await asyncio.gather(*(log.close() for log in logs))


async def test_no_plan_made_on_the_empty_log_scans_it_later(
    log: PostgresLog, admin: asyncpg.Connection
) -> None:
    for _ in range(10):
        await log.read(0, 10)
        await log.read_stream("a")
        await log.append(decided(unit(say("a"))))
    await fill(log, 5_000)
    await log.append(decided(unit(say("b"), unmoved=["a"])))
    await log.read(4_000, 10)
    await log.read_stream("b")
    await log.close()
    counters = (
        "SELECT sum(seq_tup_read), sum(idx_scan) FROM pg_stat_user_tables"
        " WHERE schemaname = 'log' AND (relname LIKE 'events%' OR relname = 'streams')"
    )

    async def known() -> bool:
        return bool((await admin.fetchrow(counters))[1] > 5_000)

    await wait_until(known, "the counters are there")
    assert (await admin.fetchrow(counters))[0] == 0


# What a process finds when it connects.


async def test_a_log_of_a_later_release_is_refused(url: str, admin: asyncpg.Connection) -> None:
    await admin.execute("UPDATE log.head SET level = 99")
    with pytest.raises(LevelTooHighError, match="level 99"):
        await PostgresLog.connect(url)


async def test_a_database_without_a_log_is_named(database_url: str) -> None:
    with pytest.raises(NotFound, match="migrate"):
        await PostgresLog.connect(database_url)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        await PostgresLog.connect("postgresql://nobody@127.0.0.1:9/none")


# Listening, leaving, and being asked by many.


async def test_a_listening_process_hears_of_others_commits(log: PostgresLog, url: str) -> None:
    heard: list[int] = []
    await log.listen(heard.append)
    other = await PostgresLog.connect(url)
    await fill(other, 3)
    await wait_until(lambda: heard[-1:] == [3], "it hears")
    await other.close()


async def test_a_listening_process_hears_again_after_its_connection_was_lost(
    log: PostgresLog, url: str, admin: asyncpg.Connection
) -> None:
    heard: list[int] = []
    await log.listen(heard.append)
    await end_sessions(admin)
    other = await PostgresLog.connect(url)
    await fill(other, 3)
    await wait_until(lambda: heard[-1:] == [3], "it hears what it missed")
    await fill(other, 1)
    await wait_until(lambda: heard[-1:] == [4], "it hears what is new")
    await other.close()


async def test_listening_on_a_server_that_is_not_there_is_unavailable() -> None:
    log = PostgresLog("postgresql://nobody@127.0.0.1:9/none")
    with pytest.raises(Unavailable):
        await log.listen(lambda _: None)
    await log.close()


async def test_a_log_that_is_closed_ends_what_it_was_asked(url: str) -> None:
    log = await PostgresLog.connect(url)
    asked = [asyncio.create_task(log.append(decided(unit(say(str(n)))))) for n in range(50)]
    await asyncio.sleep(0)
    await log.close()
    answers = await asyncio.gather(*asked)
    assert sorted(answer.positions for answer in answers) == [((n, n),) for n in range(1, 51)]


async def test_a_closed_log_takes_nothing_more(url: str) -> None:
    log = await PostgresLog.connect(url)
    await log.close()
    with pytest.raises(Unavailable, match="closed"):
        await log.append(decided(unit(say("a"))))


async def test_a_log_that_cannot_end_in_time_leaves_nobody_waiting(
    url: str, admin: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "CLOSE_TIMEOUT_S", 0.1)
    log = await PostgresLog.connect(url)
    await admin.execute("BEGIN")
    await admin.execute("SELECT * FROM log.head FOR UPDATE")
    asked = [asyncio.create_task(log.append(decided(unit(say("a", 0))))) for _ in range(3)]
    await wait_until(lambda: is_waiting(admin), "the append waits")
    await log.close()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(answer) for answer in answers] == [Unavailable] * 3


async def test_a_caller_that_gives_up_does_not_harm_its_neighbours(log: PostgresLog) -> None:
    asked = [asyncio.create_task(log.append(decided(unit(say(str(n)))))) for n in range(10)]
    await asyncio.sleep(0)
    for task in asked[::2]:
        task.cancel()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [getattr(answer, "epoch", 0) for answer in answers] == [0, 1] * 5


async def test_appends_that_come_together_share_commits(
    log: PostgresLog, admin: asyncpg.Connection
) -> None:
    await asyncio.gather(*(log.append(decided(unit(say(str(n))))) for n in range(200)))
    stamps = await admin.fetchval("SELECT count(DISTINCT at) FROM log.events")
    assert (stamps <= 3, await log.head()) == (True, Position(1, 200))
