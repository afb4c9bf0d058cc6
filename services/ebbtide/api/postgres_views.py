"""Views in Postgres, in the schema ``api``: written in one statement with their position.

They may lag and may be lost: commits are not waited for (the position is lost with them), and
what is of another history or another fold is thrown away and rebuilt.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from ebbtide.api.model import Alive, Picture, Row, Token
from ebbtide.api.views import FOLD_VERSION, Batch, JobQuery, Stored
from ebbtide.contracts.errors import InvariantBroken, StaleEpoch
from ebbtide.contracts.http import Phase
from ebbtide.contracts.ids import JobId, Workspace
from ebbtide.contracts.job_spec import JobSpec
from ebbtide.eventlog import sql
from ebbtide.eventlog.connection import (
    COMMAND_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    DRIVER_ERRORS,
    translated,
)
from ebbtide.eventlog.migrate import migrate
from ebbtide.model.node import Node

MIGRATIONS = Path(__file__).parent / "migrations"
SCHEMA = "api"
READERS_MAX = 3
"""Each connection costs the server two or three megabytes."""
_IDLE_S = 60.0

_COMMON = {
    "application_name": "ebbtide-api",
    "statement_timeout": "5s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "1s",
    "jit": "off",
}
_WRITING = _COMMON | {"synchronous_commit": "off"}
# A page's fitting index depends on which arguments are empty, so it is planned for each call.
_READING = _COMMON | {"plan_cache_mode": "force_custom_plan"}

_QUERIES = sql.load("ebbtide.api")
_encode = msgspec.json.Encoder().encode
_row = msgspec.json.Decoder(Row)
_spec = msgspec.json.Decoder(JobSpec)
_node = msgspec.json.Decoder(Node)
_token = msgspec.json.Decoder(Token)
_counts = msgspec.json.Decoder(dict[Workspace, dict[Phase, int]])


@asynccontextmanager
async def _in_our_words(pool: asyncpg.Pool | None = None) -> AsyncIterator[None]:
    try:
        yield
    except DRIVER_ERRORS as error:
        if pool is not None and isinstance(error, asyncpg.InternalClientError):
            # The driver lost track of a connection, as when a server dies in the middle of a word.
            await pool.expire_connections()
        raise translated(error, "the views' database") from error


async def _as_it_is(_connection: object) -> None:
    """Give a connection back without a question to the server: nothing here changes its state."""


class PostgresViews:
    """The views in the schema ``api`` of the database behind ``dsn``."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._writer: asyncpg.Pool | None = None
        self._readers: asyncpg.Pool | None = None

    async def open(self) -> None:
        """Connect, and bring the schema up to date."""
        await migrate(self._dsn, MIGRATIONS, SCHEMA)
        async with _in_our_words():
            self._writer = await self._pool(1, 1, _WRITING)
            self._readers = await self._pool(0, READERS_MAX, _READING)

    async def _pool(self, least: int, most: int, settings: dict[str, str]) -> asyncpg.Pool:
        return await asyncpg.create_pool(
            self._dsn,
            min_size=least,
            max_size=most,
            max_inactive_connection_lifetime=_IDLE_S if least == 0 else 0,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=COMMAND_TIMEOUT_S,
            server_settings=settings,
            reset=_as_it_is,
        )

    async def load(self) -> Stored:
        """Give what was kept by this fold."""
        progress = await self._read("progress")
        if not progress or progress[0]["fold"] != FOLD_VERSION:
            return Stored(epoch=0, position=0, picture=Picture())
        picture = Picture(counts=_counts.decode(progress[0]["counts"]))
        for kept in await self._read("load_jobs"):
            alive = _alive(kept)
            picture.jobs[alive.row.id] = alive
        for kept in await self._read("load_things"):
            if kept["kind"] == "node":
                node = _node.decode(kept["body"])
                picture.nodes[node.number] = node
            else:
                token = _token.decode(kept["body"])
                picture.tokens[token.id] = token
        picture.recharge()
        epoch, position = progress[0]["epoch"], progress[0]["position"]
        return Stored(epoch=epoch, position=position, picture=picture)

    async def reset(self, epoch: int) -> None:
        """Throw everything away and begin again."""
        async with _in_our_words(self._writer):
            await _open(self._writer).execute(_QUERIES["reset"], FOLD_VERSION, epoch)

    async def save(self, batch: Batch) -> None:
        """Keep a batch that is ahead of what is kept."""
        things = [("node", str(node.number), _text(node)) for node in batch.nodes]
        things += [("token", token.id, _text(token)) for token in batch.tokens]
        async with _in_our_words(self._writer):
            moved = await _open(self._writer).fetchval(
                _QUERIES["save"],
                FOLD_VERSION,
                batch.epoch,
                batch.position,
                _text(batch.counts),
                *_columns(things, 3),
                *_columns((_job_columns(alive) for alive in batch.jobs), 9),
            )
        if not moved:
            await self._check(batch.epoch)

    async def _check(self, epoch: int) -> None:
        """Tell "another replica was faster" from "these views are not ours any more"."""
        progress = await self._read("progress")
        if not progress or (progress[0]["fold"], progress[0]["epoch"]) != (FOLD_VERSION, epoch):
            raise StaleEpoch("the views were begun anew by somebody else")

    async def page(self, query: JobQuery) -> list[Row]:
        """Give at most ``query.limit`` jobs, newest first."""
        kept = await self._read(
            "page",
            query.workspace,
            list(query.phases),
            query.name,
            query.actor,
            query.before,
            query.limit,
        )
        return [_row.decode(one["body"]) for one in kept]

    async def job(self, job: JobId) -> Alive | None:
        """Give one job."""
        kept = await self._read("job", job)
        return _alive(kept[0]) if kept else None

    async def _read(self, name: str, *arguments: Any) -> list[asyncpg.Record]:
        async with _in_our_words(self._readers):
            rows: list[asyncpg.Record] = await _open(self._readers).fetch(
                _QUERIES[name], *arguments
            )
            return rows

    async def close(self) -> None:
        """Let go of connections, within a bound."""
        for pool in (self._writer, self._readers):
            if pool is None:
                continue
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await pool.close()
            except DRIVER_ERRORS:
                pool.terminate()


def _open(pool: asyncpg.Pool | None) -> asyncpg.Pool:
    if pool is None:
        raise InvariantBroken("the views were not opened")
    return pool


def _text(value: object) -> str:
    return _encode(value).decode()


def _alive(kept: asyncpg.Record) -> Alive:
    return Alive(row=_row.decode(kept["body"]), spec=_spec.decode(kept["spec"]))


def _job_columns(alive: Alive) -> tuple[object, ...]:
    row = alive.row
    return (
        row.id,
        row.workspace,
        row.name,
        row.actor,
        row.submitted,
        row.phase,
        row.is_alive,
        _text(row),
        _text(alive.spec),
    )


def _columns(rows: Iterable[tuple[object, ...]], width: int) -> list[list[object]]:
    """Turn rows into the columns that ``unnest`` takes."""
    columns: list[list[object]] = [[] for _ in range(width)]
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return columns
