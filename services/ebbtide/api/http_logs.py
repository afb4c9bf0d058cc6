"""``/v1/jobs/{id}/logs``: bytes of a worker's log, in pieces or as a stream (SSE)."""

from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from litestar import Response, get
from litestar.params import FromPath, QueryParameter

from ebbtide.api import job_logs
from ebbtide.api.door import Door
from ebbtide.api.http_common import ALIVE, END, PROBLEMS, Asking, door_of, stream, wants_stream
from ebbtide.api.job_logs import PIECE_MAX, WAIT_MAX_S, Piece, Wanted
from ebbtide.api.tokens import Principal
from ebbtide.contracts.errors import NotFound, Unavailable
from ebbtide.contracts.http import LOG_ATTEMPT, LOG_ENDED, LOG_OFFSET, LOG_SIZE, LOG_WORKER
from ebbtide.contracts.ids import JobId

OFFSET_MAX = 1 << 50
FOLLOW_WAIT_S = 15.0
FOLLOW_PIECE = 64 * 1024
"""Each follower that reads slowly holds a few of these in our memory."""


def _headers(piece: Piece) -> dict[str, str]:
    return {
        LOG_ATTEMPT: str(piece.attempt),
        LOG_WORKER: str(piece.worker),
        LOG_OFFSET: str(piece.offset),
        LOG_SIZE: str(piece.size),
        LOG_ENDED: "true" if piece.ended else "false",
        "Cache-Control": "no-store",
    }


@get(
    "/jobs/{job:str}/logs",
    summary="A worker's log",
    media_type="application/octet-stream",
    responses=PROBLEMS,
)
async def job_logs_piece(  # noqa: PLR0913, PLR0917 - each is a query parameter
    request: Asking,
    job: FromPath[str],
    worker: Annotated[int, QueryParameter(ge=0)] = 0,
    attempt: Annotated[int, QueryParameter(ge=0)] = 0,
    offset: Annotated[int, QueryParameter(ge=0, le=OFFSET_MAX)] = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=PIECE_MAX)] = PIECE_MAX,
    wait_s: Annotated[float, QueryParameter(ge=0, le=WAIT_MAX_S)] = 0.0,
) -> Response[bytes]:
    """Give bytes from ``offset`` on, waiting up to ``wait_s``; attempt 0 is the newest.

    As ``text/event-stream`` the log is followed until the attempt has ended: each event's id is the
    offset after it, its data the text as a JSON string.
    """
    door, name = door_of(request), JobId(job)
    wanted = Wanted(attempt, worker, offset, limit, wait_s)
    if wants_stream(request):
        limit = min(limit, FOLLOW_PIECE)
        wanted = wanted._replace(offset=_resumed(request, offset), limit=limit, wait_s=0.0)
        first = await job_logs.read(door, name, request.auth, wanted)
        return stream(_follow(door, name, request.auth, wanted, first))  # type: ignore[return-value]  # the schema shows the bytes
    piece = await job_logs.read(door, name, request.auth, wanted)
    return Response(piece.data, headers=_headers(piece))


def _resumed(request: Asking, offset: int) -> int:
    seen = request.headers.get("last-event-id", "")
    return int(seen) if seen.isdecimal() and len(seen) < 16 else offset


async def _follow(
    door: Door, job: JobId, principal: Principal, wanted: Wanted, piece: Piece
) -> AsyncIterator[bytes]:
    while not door.feed.closed:
        after = piece.offset + len(piece.data)
        yield _line(piece, after) if piece.data else ALIVE
        if piece.ended and (after >= piece.size or not piece.data):
            yield END
            return
        wait_s = 0.0 if piece.data else FOLLOW_WAIT_S
        wanted = wanted._replace(attempt=piece.attempt, offset=after, wait_s=wait_s)
        try:
            piece = await job_logs.read(door, job, principal, wanted)
        except (NotFound, Unavailable):
            return  # no end was said, so the caller comes back and is told


def _line(piece: Piece, after: int) -> bytes:
    text = msgspec.json.encode(piece.data.decode("utf-8", errors="replace"))
    return b"id: %d\nevent: log\ndata: %b\n\n" % (after, text)


HANDLERS = [job_logs_piece]
