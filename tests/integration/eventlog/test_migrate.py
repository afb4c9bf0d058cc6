"""Migrations on a real database: from empty, forward, once."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from ebbtide.contracts.errors import InvariantBroken, Unavailable
from ebbtide.eventlog.migrate import MigrationBrokenError, migrate


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Migrations of some package."""
    (tmp_path / "0001_thing.sql").write_text(
        "CREATE SCHEMA things; CREATE TABLE things.thing (name text);"
    )
    return tmp_path


async def _columns(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_schema = 'things' ORDER BY 1"
    )
    await connection.close()
    return [row[0] for row in rows]


async def test_an_empty_database_gets_the_log(database_url: str) -> None:
    assert await migrate(database_url) == ["0001_log.sql"]


async def test_nothing_is_applied_twice(database_url: str) -> None:
    await migrate(database_url)
    assert await migrate(database_url) == []


async def test_of_many_that_migrate_at_once_one_works(database_url: str) -> None:
    done = await asyncio.gather(*(migrate(database_url) for _ in range(5)))
    assert sorted(done) == [[], [], [], [], ["0001_log.sql"]]


async def test_a_later_release_applies_only_what_is_new(database_url: str, folder: Path) -> None:
    await migrate(database_url, folder, "things")
    (folder / "0002_size.sql").write_text("ALTER TABLE things.thing ADD COLUMN size bigint;")
    assert await migrate(database_url, folder, "things") == ["0002_size.sql"]


async def test_an_earlier_release_leaves_a_later_database_alone(
    database_url: str, folder: Path
) -> None:
    later = folder / "0002_size.sql"
    later.write_text("ALTER TABLE things.thing ADD COLUMN size bigint;")
    await migrate(database_url, folder, "things")
    later.unlink()
    assert await migrate(database_url, folder, "things") == []


async def test_schemas_are_counted_apart(database_url: str, folder: Path) -> None:
    await migrate(database_url)
    assert await migrate(database_url, folder, "things") == ["0001_thing.sql"]


async def test_a_file_that_changed_after_it_was_applied_is_refused(
    database_url: str, folder: Path
) -> None:
    await migrate(database_url, folder, "things")
    (folder / "0001_thing.sql").write_text("CREATE SCHEMA things;")
    with pytest.raises(MigrationBrokenError, match=r"0001_thing\.sql"):
        await migrate(database_url, folder, "things")


async def test_a_file_that_fails_leaves_no_trace(database_url: str, folder: Path) -> None:
    broken = folder / "0002_size.sql"
    broken.write_text("ALTER TABLE things.thing ADD COLUMN size bigint; SELECT no_such_thing;")
    with pytest.raises(InvariantBroken, match="no_such_thing"):
        await migrate(database_url, folder, "things")
    assert await _columns(database_url) == ["name"]


async def test_a_file_that_failed_is_applied_once_it_is_mended(
    database_url: str, folder: Path
) -> None:
    broken = folder / "0002_size.sql"
    broken.write_text("SELECT no_such_thing;")
    with pytest.raises(InvariantBroken):
        await migrate(database_url, folder, "things")
    broken.write_text("ALTER TABLE things.thing ADD COLUMN size bigint;")
    await migrate(database_url, folder, "things")
    assert await _columns(database_url) == ["name", "size"]


async def test_a_database_that_does_not_answer_is_unavailable(folder: Path) -> None:
    with pytest.raises(Unavailable):
        await migrate("postgresql://nobody@127.0.0.1:9/none", folder, "things")
