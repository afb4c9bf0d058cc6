"""``/v1/jobs/{id}/events`` and ``/v1/events``: what was said, as JSON or SSE."""

from collections.abc import AsyncIterator
from typing import Annotated, TypeAlias

import msgspec
from litestar import Response, get
from litestar.params import FromPath, QueryParameter
from litestar.response import Stream

from ebbtide.api import story
from ebbtide.api.door import Door
from ebbtide.api.http_common import (
    ALIVE,
    END,
    POSITION_MAX,
    PROBLEMS,
    Asking,
    PositionQuery,
    door_of,
    only_admin,
    reached,
    stream,
    wants_stream,
)
from ebbtide.api.tokens import Principal
from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.errors import Unavailable
from ebbtide.contracts.events import tag_of
from ebbtide.contracts.ids import JobId

LIMIT, LIMIT_MAX = 500, 2000
"""Events on one page; most are a few hundred bytes, and none is larger than 64 KiB."""
After = Annotated[
    int,
    QueryParameter(ge=0, le=POSITION_MAX, description="leave out what is up to this position"),
]
Limit = Annotated[int, QueryParameter(ge=1, le=LIMIT_MAX, description="events on a page")]
_Batches: TypeAlias = AsyncIterator[list[Recorded]]
_encode = msgspec.json.Encoder().encode


def _after(door: Door, request: Asking, after: int) -> int:
    """Go on where the caller was: after what it last saw of this history, or ``after``."""
    epoch, _, position = request.headers.get("last-event-id", "").partition(".")
    if not (epoch.isdecimal() and position.isdecimal() and max(len(epoch), len(position)) < 19):
        return after
    return int(position) if int(epoch) == door.source.position.epoch else 0


def _line(door: Door, recorded: Recorded) -> bytes:
    name = tag_of(recorded.body)
    epoch = door.source.position.epoch
    head = f"id: {epoch}.{recorded.position}\nevent: {name}\ndata: ".encode()
    return head + _encode(recorded) + b"\n\n"


async def _streamed(request: Asking, batches: _Batches) -> Stream:
    """Answer with a stream once its first batch is there.

    Raises:
        Unavailable: there are too many streams, or the log does not answer; nothing was sent yet.
    """
    first = await anext(batches)
    return stream(_lines(door_of(request), request.auth, first, batches))


async def _lines(
    door: Door, principal: Principal, first: list[Recorded], batches: _Batches
) -> AsyncIterator[bytes]:
    batch: list[Recorded] | None = first
    try:
        while batch is not None:
            if door.picture.tokens[principal.token].revoked_at is not None:
                return  # whoever listens comes back, and is refused at the door
            yield b"".join(_line(door, recorded) for recorded in batch) or ALIVE
            batch = await anext(batches, None)
    except Unavailable:
        return  # no end was said, so the caller comes back with the last id it saw
    if not door.feed.closed:
        yield END


@get("/jobs/{job:str}/events", summary="A job's story", responses=PROBLEMS)
async def job_events(
    request: Asking,
    job: FromPath[str],
    after: After = 0,
    limit: Limit = LIMIT,
    min_position: PositionQuery = 0,
) -> Response[list[Recorded]]:
    """Give a page of a job's events in order; one that is not full is the last so far.

    With ``Accept: text/event-stream`` give all of them, and go on until the job has ended.
    """
    door = door_of(request)
    await reached(door, min_position)
    seam = door.projector.position
    alive = await door.job(JobId(job), request.auth)
    if wants_stream(request):
        after = _after(door, request, after)
        return await _streamed(request, story.follow_job(door, alive.row.id, after))  # type: ignore[return-value]  # the schema shows the JSON form
    return Response(await story.told(door, alive, after, seam, limit))


@get("/events", summary="Everything that was said", responses=PROBLEMS)
async def all_events(
    request: Asking,
    after: Annotated[int | None, QueryParameter(ge=0, le=POSITION_MAX)] = None,
    limit: Limit = LIMIT,
) -> Response[list[Recorded]]:
    """Give a page of the log (admins only); as a stream, go on for ever, by default from now."""
    only_admin(request)
    door = door_of(request)
    if wants_stream(request):
        start = _after(door, request, door.projector.position if after is None else after)
        return await _streamed(request, story.follow_all(door, start))  # type: ignore[return-value]  # as above
    return Response(await door.log.read(after or 0, limit))


HANDLERS = [job_events, all_events]
