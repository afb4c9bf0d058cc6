"""Reads a worker's log, wherever it is: from the agent that has it, else from the store.

A log that still grows is read from its node, which may wait for news; what ended long ago is in the
store. A node that does not answer, or in a way that cannot be read, costs a short wait, never an
error: what the store has is given.
"""

import asyncio
from typing import NamedTuple

import msgspec
import structlog

from ebbtide.api.door import Door
from ebbtide.api.model import Alive
from ebbtide.api.tokens import Principal
from ebbtide.chassis.job_logs import read_range
from ebbtide.contracts import subjects
from ebbtide.contracts.agents import LogChunk, LogRead
from ebbtide.contracts.errors import NotFound, Unavailable
from ebbtide.contracts.ids import JobId

PIECE_MAX = 512 * 1024
"""Bytes in one answer; a message on the bus is at most 1 MiB."""
WAIT_MAX_S = 25.0
AGENT_GRACE_S = 2.0
STORE_POLL_S = 1.0
"""How often a log that cannot be read from its node is looked for in the store by one who waits."""

_log = structlog.get_logger()
_chunk = msgspec.json.Decoder(LogChunk)


class Piece(NamedTuple):
    """Bytes of a worker's log. ``ended`` says that ``size`` is final; some may be missing."""

    attempt: int
    worker: int
    offset: int
    size: int
    ended: bool
    data: bytes


class Wanted(NamedTuple):
    """What to read: ``attempt`` 0 is the newest; ``wait_s`` is how long to wait for news."""

    attempt: int
    worker: int
    offset: int
    limit: int
    wait_s: float


async def read(door: Door, job: JobId, principal: Principal, wanted: Wanted) -> Piece:
    """Read a piece of a log.

    Raises:
        NotFound: no such job, worker or attempt, and there will be none.
    """
    least = max(1, wanted.attempt)
    alive = await door.wait(job, principal, lambda one: one.row.attempt >= least, wanted.wait_s)
    if not 0 <= wanted.worker < alive.row.workers:
        raise NotFound(f"{job} has workers 0 to {alive.row.workers - 1}, not {wanted.worker}")
    if alive.row.attempt < least:
        if alive.row.is_final:
            raise NotFound(f"{job} has ended, and never had attempt {least}")
        return Piece(least, wanted.worker, 0, 0, ended=False, data=b"")
    wanted = wanted._replace(attempt=wanted.attempt or alive.row.attempt)
    piece = await _from_agent(door, alive, wanted)
    return piece or await _from_store(door, alive, wanted)


def _final_size(alive: Alive, wanted: Wanted) -> int | None:
    """Give the size up to which the job's log is complete, if that was said and is kept."""
    row = alive.row
    known = wanted.attempt == row.ended_attempt and wanted.worker < len(row.log_bytes)
    return row.log_bytes[wanted.worker] if known else None


async def _from_agent(door: Door, alive: Alive, wanted: Wanted) -> Piece | None:
    """Ask the node of the newest attempt; None if it has nothing or does not answer."""
    row = alive.row
    if wanted.attempt != row.attempt or wanted.worker >= len(row.places):
        return None
    node = door.picture.nodes.get(row.places[wanted.worker])
    if node is None or node.reachability == "lost":
        return None
    asked = LogRead(
        job=row.id,
        attempt=wanted.attempt,
        worker=wanted.worker,
        offset=wanted.offset,
        limit=wanted.limit,
        wait_ms=int(wanted.wait_s * 1000),
    )
    subject = subjects.node(door.cell, node.name, "logs")
    try:
        answer = await door.bus.request(
            subject, msgspec.json.encode(asked), wanted.wait_s + AGENT_GRACE_S
        )
        chunk = _chunk.decode(answer)
    except Unavailable:
        return None
    except msgspec.MsgspecError as error:
        _log.warning("log.malformed_answer", node=node.name, error=str(error))
        return None
    if not chunk.known:
        return None
    return Piece(wanted.attempt, wanted.worker, chunk.offset, chunk.size, chunk.ended, chunk.data)


async def _from_store(door: Door, alive: Alive, wanted: Wanted) -> Piece:
    row = alive.row
    ended = wanted.attempt < row.attempt or wanted.attempt == row.ended_attempt or row.is_final
    data, size = await asyncio.to_thread(
        read_range, door.store, row.id, wanted.attempt, wanted.worker, wanted.offset, wanted.limit
    )
    if not data and not ended and wanted.wait_s > 0:
        # Its node cannot be asked: look again when the job moves, or soon.
        with door.feed.waiting(row.id) as news:
            await asyncio.wait({news}, timeout=min(STORE_POLL_S, wanted.wait_s))
    size = max(size, _final_size(alive, wanted) or 0)
    return Piece(wanted.attempt, wanted.worker, wanted.offset, size, ended, data)
