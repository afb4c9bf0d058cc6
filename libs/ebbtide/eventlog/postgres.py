"""The log in Postgres: one connection that appends, one that reads, and one that listens if asked.

Appends of a process that come while another is under way are gathered into the next call; there is
no timer. What was recorded is built from memory and handed to :attr:`PostgresLog.on_commit`, so
that the process's own services hear of it without asking the database.

An append whose connection is lost after it was sent may have been recorded or not, and is never
repeated here: its caller gets ``Unavailable``. A cycle then reads its checkpoint and on to the
head; the revision that its next append names is refused if the lost one, or one still under way,
comes first. A door asks again with the same ids and expected versions, which hold once.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Iterable

import asyncpg
import structlog

from ebbtide.contracts.envelope import Appended, Position, Recorded
from ebbtide.contracts.errors import Conflict, EbbtideError, NotFound, Unavailable
from ebbtide.contracts.upcasts import CONTRACT_LEVEL, decode_body
from ebbtide.eventlog import sql
from ebbtide.eventlog.connection import Lane
from ebbtide.eventlog.ear import Ear
from ebbtide.eventlog.entries import OnCommit, entries_of
from ebbtide.eventlog.gather import (
    CALL_EVENTS_MAX,
    Gathered,
    Verdict,
    Waiting,
    columns,
    settle,
    waiting,
)
from ebbtide.eventlog.log import Checkpoint, Decided, Snapshot

PARTITION_EVENTS = 1_000_000
"""Positions per partition: about 1 GB, a day of a busy cell; the unit of archiving."""
WAITING_MAX = 10_000
"""Appends that may wait for a call; more means that the database does not keep up."""
SNAPSHOTS_KEPT = 2
CLOSE_TIMEOUT_S = 5.0

_QUERIES = sql.load("ebbtide.eventlog")
_log = structlog.get_logger()


class LevelTooHighError(EbbtideError):
    """The log says things that this release cannot read: upgrade before it may take part."""

    code = "log.level"


class PostgresLog:
    """A log for processes on many machines. Make one by :meth:`connect`."""

    def __init__(
        self, dsn: str, on_commit: OnCommit | None = None, partition_events: int = PARTITION_EVENTS
    ) -> None:
        self.on_commit = on_commit
        self._dsn = dsn
        self._partition_events = partition_events
        self._writer = Lane(dsn, _greet)
        self._reader = Lane(dsn, _greet)
        self._queue: deque[Waiting] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._ears: list[Ear] = []
        self._no_partition_from = 0

    @classmethod
    async def connect(
        cls,
        dsn: str,
        on_commit: OnCommit | None = None,
        *,
        partition_events: int = PARTITION_EVENTS,
    ) -> "PostgresLog":
        """Connect to a database whose log schema is there, and see that there is room to append.

        Raises:
            Unavailable: the server does not answer.
            NotFound: the database holds no log; migrate it first.
            LevelTooHighError: the log is of a later release.
        """
        log = cls(dsn, on_commit, partition_events)
        try:
            await log._make_room((await log.head()).number)
        except BaseException:
            await log.close()
            raise
        return log

    async def append(self, decided: Decided) -> Appended:
        """Record the units that stand, and the service's checkpoint; see :class:`Log`.

        Raises:
            Malformed: a body is too large, or a text cannot be stored; nothing was recorded.
            Unavailable: it is not known whether anything was recorded.
        """
        entries = entries_of(decided)
        if len(self._queue) >= WAITING_MAX:
            raise Unavailable(f"{WAITING_MAX} appends wait already")
        loop = asyncio.get_running_loop()
        batch = waiting(decided, entries, loop.create_future())
        self._queue.append(batch)
        if self._pump is None or self._pump.done():
            self._pump = loop.create_task(self._work_off())
        return await batch.answer

    async def _work_off(self) -> None:
        """Call after call, each with what queued while the last one flew."""
        batches: list[Waiting] = []
        try:
            while self._queue:
                gathered = Gathered()
                gathered.take_from(self._queue)
                batches = gathered.batches
                await self._fly(batches)
                # A pass of the loop for those who decide on what was just recorded: their batches
                # go along with this call, instead of waiting for all of it to come back.
                await asyncio.sleep(0)
        except BaseException:
            # Cancelled, or a mistake of ours: in no case may anybody wait for ever.
            _fail((*batches, *self._queue), Unavailable("the append was broken off"))
            self._queue.clear()
            raise

    async def _fly(self, batches: list[Waiting]) -> None:
        if not batches:
            return
        try:
            verdict = await self._call(batches)
        except EbbtideError as error:
            _fail(batches, error)
            return
        self._announce(batches, verdict)
        await self._keep_room(verdict.head.number + len(verdict.versions))

    async def _call(self, batches: list[Waiting]) -> Verdict:
        row = await self._writer.fetchrow(_QUERIES["append"], *columns(batches))
        if row is None:
            raise Unavailable("the append function gave no row")
        return Verdict(
            head=Position(row["head_epoch"], row["head_position"]),
            stamp=row["stamp"],
            verdicts=row["verdicts"],
            revisions=row["revisions"],
            dropped=frozenset(unit - 1 for unit in row["dropped"]),
            versions=row["versions"] or (),
        )

    def _announce(self, batches: list[Waiting], verdict: Verdict) -> None:
        """Hand out what was recorded, then answer: who asked finds its own events delivered."""
        outcomes, recorded = settle(batches, verdict)
        try:
            if recorded and self.on_commit is not None:
                self.on_commit(recorded)
        finally:
            for batch, outcome in zip(batches, outcomes, strict=True):
                if batch.answer.done():
                    continue
                if isinstance(outcome, Conflict):
                    batch.answer.set_exception(outcome)
                else:
                    batch.answer.set_result(outcome)

    async def _keep_room(self, position: int) -> None:
        """Make partitions when the last one is in use; a failure is mended after the next call."""
        if position + self._ahead() < self._no_partition_from:
            return
        try:
            await self._make_room(position)
        except EbbtideError as error:
            _log.warning("log.no_room_made", position=position, error=str(error))

    async def _make_room(self, position: int) -> None:
        row = await self._writer.fetchrow(
            _QUERIES["ensure_partitions"], position + 2 * self._ahead(), self._partition_events
        )
        self._no_partition_from = row[0] if row is not None else 0

    def _ahead(self) -> int:
        """Positions that must always have room: any one call, and others who have not looked."""
        return max(self._partition_events // 2, CALL_EVENTS_MAX)

    async def head(self) -> Position:
        """Give epoch and position of the newest event."""
        row = await self._reader.fetchrow(_QUERIES["head"])
        if row is None:
            raise NotFound("the database holds no log; migrate it first")
        return Position(row["epoch"], row["position"])

    async def read(self, after: int, limit: int) -> list[Recorded]:
        """Give at most ``limit`` events that follow position ``after``, in order."""
        rows = await self._reader.fetch(_QUERIES["read"], after, limit)
        return [_recorded(row) for row in rows]

    async def read_stream(self, stream: str) -> list[Recorded]:
        """Give all events of one stream, in order."""
        rows = await self._reader.fetch(_QUERIES["read_stream"], stream)
        return [_recorded(row) for row in rows]

    async def checkpoint(self, service: str) -> Checkpoint:
        """Give the service's checkpoint; revision 0 and position 0 if it never appended."""
        row = await self._reader.fetchrow(_QUERIES["checkpoint"], service)
        if row is None:
            return Checkpoint(revision=0, read_to=Position((await self.head()).epoch, 0))
        return Checkpoint(revision=row["revision"], read_to=Position(row["epoch"], row["position"]))

    async def load_snapshots(self, service: str, fold_version: int) -> list[Snapshot]:
        """Give the whole snapshots of this fold and of the present epoch, newest first."""
        rows = await self._reader.fetch(_QUERIES["load_snapshots"], service, fold_version)
        return [
            Snapshot(
                epoch=row["epoch"],
                position=row["position"],
                fold_version=fold_version,
                body=row["body"],
            )
            for row in rows
            if row["digest"] == _digest(row["body"])
        ]

    async def save_snapshot(self, service: str, snapshot: Snapshot) -> None:
        """Keep a snapshot, and drop all but the newest two of the service."""
        digest = await asyncio.to_thread(_digest, snapshot.body)

        async def save(connection: asyncpg.Connection) -> None:
            async with connection.transaction():
                await connection.execute(
                    _QUERIES["save_snapshot"],
                    service,
                    snapshot.epoch,
                    snapshot.position,
                    snapshot.fold_version,
                    digest,
                    snapshot.body,
                )
                await connection.execute(_QUERIES["drop_snapshots"], service, SNAPSHOTS_KEPT)

        await self._reader.call(save)

    async def raise_epoch(self) -> Position:
        """Begin a new epoch at the present head."""
        row = await self._writer.fetchrow(_QUERIES["raise_epoch"])
        if row is None:
            raise NotFound("the database holds no log; migrate it first")
        return Position(row["head_epoch"], row["head_position"])

    async def listen(self, heard: Callable[[int], None]) -> None:
        """Have ``heard`` called with the head's position after each commit of any process.

        Returns once it listens; goes on until :meth:`close`. The calls are hints: some are missed
        while a lost connection is made again, and the head is then told once more.
        """
        ear = Ear(self._dsn, heard)
        await ear.start()
        self._ears.append(ear)

    async def close(self) -> None:
        """Let appends that were asked for end, within a bound; then let go of connections."""
        if self._pump is not None and not self._pump.done():
            await asyncio.wait({self._pump}, timeout=CLOSE_TIMEOUT_S)
            self._pump.cancel()
            await asyncio.wait({self._pump})
        _fail(self._queue, Unavailable("this log was closed"))
        ears = (ear.close() for ear in self._ears)
        await asyncio.gather(*ears, self._writer.close(), self._reader.close())


async def _greet(connection: asyncpg.Connection) -> None:
    """Refuse a database without a log, and a log that says more than this release can read."""
    try:
        row = await connection.fetchrow(_QUERIES["head"])
    except asyncpg.UndefinedTableError as error:
        raise NotFound("the database holds no log; migrate it first") from error
    if row is not None and row["level"] > CONTRACT_LEVEL:
        raise LevelTooHighError(
            f"the log is at contract level {row['level']}, this release reads up to "
            f"{CONTRACT_LEVEL}: upgrade it"
        )


def _fail(batches: Iterable[Waiting], error: EbbtideError) -> None:
    for batch in batches:
        if not batch.answer.done():
            # Each its own: one exception raised in several tasks would mix their tracebacks.
            own = type(error)(str(error))
            own.__cause__ = error
            batch.answer.set_exception(own)


def _recorded(row: asyncpg.Record) -> Recorded:
    return Recorded(
        epoch=row[0],
        position=row[1],
        stream=row[2],
        version=row[3],
        event_id=row[4],
        at=row[5],
        workspace=row[6],
        actor=row[7],
        cause=row[8],
        service=row[9],
        read_to=row[10],
        decided_at=row[11],
        rules=row[12],
        trace=row[13],
        body=decode_body(row[14], row[15]),
    )


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()
