"""Brings a schema forward: numbered SQL files, each applied once, in order, in its own transaction.

It never goes back and never runs a file that it does not have; a database that is ahead of this
release is left as it is, so that the release before the newest one can go on running.
"""

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

import asyncpg

from ebbtide.contracts.errors import EbbtideError, Unavailable
from ebbtide.eventlog import sql
from ebbtide.eventlog.connection import DRIVER_ERRORS, translated

LOG_SCHEMA = "log"
LOG_MIGRATIONS = Path(__file__).parent / "migrations"
CONNECT_TIMEOUT_S = 10.0
STATEMENT_TIMEOUT_S = 300.0
"""One file, or the wait for another process that is migrating."""

_QUERIES = sql.load("ebbtide.eventlog")
_FILE = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


class MigrationBrokenError(EbbtideError):
    """What was applied to the database is not what this release holds under the same number."""

    code = "migration.broken"


class Migration(NamedTuple):
    """One step: its number, its file name, the SQL and a digest of it."""

    number: int
    name: str
    text: str
    digest: str


def migrations_in(folder: Path) -> list[Migration]:
    """Read the numbered files of ``folder``, in order."""
    found = []
    for path in sorted(folder.glob("*.sql")):
        match = _FILE.fullmatch(path.name)
        if match is None:
            raise MigrationBrokenError(f"{path.name} is not named like 0001_what_it_does.sql")
        text = path.read_text(encoding="utf-8")
        digest = hashlib.sha256(text.encode()).hexdigest()
        found.append(Migration(int(match[1]), path.name, text, digest))
    numbers = [migration.number for migration in found]
    if numbers != list(range(1, len(found) + 1)):
        raise MigrationBrokenError(
            f"the files in {folder.name} are not numbered 1, 2, 3 …: {numbers}"
        )
    return found


async def migrate(dsn: str, folder: Path = LOG_MIGRATIONS, schema: str = LOG_SCHEMA) -> list[str]:
    """Apply what is missing of ``folder`` and give the names of the files applied.

    ``schema`` is the name under which the steps are counted; the files make it themselves. Several
    processes may call this at once: one works, the others wait and find nothing left to do.

    Raises:
        MigrationBrokenError: an applied file has changed since.
        Unavailable: the database does not answer.
        InvariantBroken: the database refuses a file; what was applied before it stays.
    """
    steps = migrations_in(folder)
    try:
        connection = await asyncpg.connect(
            dsn, timeout=CONNECT_TIMEOUT_S, command_timeout=STATEMENT_TIMEOUT_S
        )
    except DRIVER_ERRORS as error:
        raise Unavailable(f"cannot reach the database to migrate it: {error}") from error
    try:
        return await _apply(connection, steps, schema)
    except DRIVER_ERRORS as error:
        raise translated(error) from error
    finally:
        await connection.close(timeout=CONNECT_TIMEOUT_S)


async def _apply(connection: asyncpg.Connection, steps: list[Migration], schema: str) -> list[str]:
    # The lock belongs to the session, so it ends with the connection however this ends.
    await connection.execute(_QUERIES["lock_migrations"])
    await connection.execute(_QUERIES["make_migrations"])
    rows = await connection.fetch(_QUERIES["list_migrations"], schema)
    applied = {row["number"]: row["digest"] for row in rows}
    done = []
    for step in steps:
        if step.number in applied:
            _same(step, applied[step.number])
            continue
        async with connection.transaction():
            await connection.execute(step.text)
            await connection.execute(
                _QUERIES["record_migration"], schema, step.number, step.name, step.digest
            )
        done.append(step.name)
    return done


def _same(step: Migration, digest: str) -> None:
    if step.digest != digest:
        raise MigrationBrokenError(
            f"{step.name} was changed after it had been applied; add a new file instead"
        )
