"""``/v1/jobs/{id}/events`` and ``/v1/events``: what was said, as JSON or SSE."""

from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from litestar import Response, get
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

from ebbtide.api import story
from ebbtide.api.door import Door
from ebbtide.api.http_common import PROBLEMS, Asking, door_of, only_admin, reached
from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.errors import Unavailable
from ebbtide.contracts.events import tag_of
from ebbtide.contracts.ids import JobId

EVENT_STREAM = "text/event-stream"
LIMIT_MAX = 2000
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_END = b"event: end\ndata: {}\n\n"
_ALIVE = b": waiting\n\n"
_encode = msgspec.json.Encoder().encode


def wants_stream(request: Asking) -> bool:
    """Say whether the caller asked for server-sent events."""
    return EVENT_STREAM in request.headers.get("accept", "")


def _after(door: Door, request: Asking, after: int) -> int:
    """Go on where the caller was: after what it last saw of this history, or ``after``."""
    epoch, _, position = request.headers.get("last-event-id", "").partition(".")
    if not (epoch.isdecimal() and position.isdecimal() and len(position) < 19):
        return after
    return int(position) if int(epoch) == door.source.position.epoch else 0


def _line(door: Door, recorded: Recorded) -> bytes:
    name = tag_of(recorded.body)
    epoch = door.source.position.epoch
    head = f"id: {epoch}.{recorded.position}\nevent: {name}\ndata: ".encode()
    return head + _encode(recorded) + b"\n\n"


async def _lines(door: Door, batches: AsyncIterator[list[Recorded]]) -> AsyncIterator[bytes]:
    try:
        async for batch in batches:
            yield b"".join(_line(door, recorded) for recorded in batch) or _ALIVE
    except Unavailable:
        return  # no end was said, so the caller comes back with the last id it saw
    if not door.feed.closed:
        yield _END


def _stream(door: Door, batches: AsyncIterator[list[Recorded]]) -> Stream:
    return Stream(_lines(door, batches), media_type=EVENT_STREAM, headers=_HEADERS)


@get("/jobs/{job:str}/events", summary="A job's story", responses=PROBLEMS)
async def job_events(
    request: Asking,
    job: FromPath[str],
    after: Annotated[int, QueryParameter(ge=0)] = 0,
    min_position: FromQuery[int] = 0,
) -> Response[list[Recorded]]:
    """Give a job's events in order; with ``Accept: text/event-stream`` go on until it has ended."""
    door = door_of(request)
    await reached(door, min_position)
    alive = await door.job(JobId(job), request.auth)
    if wants_stream(request):
        batches = story.follow_job(door, alive.row.id, _after(door, request, after))
        return _stream(door, batches)  # type: ignore[return-value]  # the schema shows the JSON form
    told = await story.told(door, alive)
    return Response([recorded for recorded in told if recorded.position > after])


@get("/events", summary="Everything that was said", responses=PROBLEMS)
async def all_events(
    request: Asking,
    after: Annotated[int | None, QueryParameter(ge=0)] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=LIMIT_MAX)] = 500,
) -> Response[list[Recorded]]:
    """Give a page of the log (admins only); as a stream, go on for ever, by default from now."""
    only_admin(request)
    door = door_of(request)
    if wants_stream(request):
        start = _after(door, request, door.projector.position if after is None else after)
        return _stream(door, story.follow_all(door, start))  # type: ignore[return-value]  # as above
    return Response(await door.log.read(after or 0, limit))


HANDLERS = [job_events, all_events]
