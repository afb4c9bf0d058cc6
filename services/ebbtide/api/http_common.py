"""What the handlers share: who asks, the door behind the request, and how far it must have read."""

import re
from collections.abc import AsyncIterator
from typing import Annotated, TypeAlias

from litestar import Request
from litestar.datastructures import State
from litestar.openapi import ResponseSpec
from litestar.params import QueryParameter
from litestar.response import Stream

from ebbtide.api.door import Door
from ebbtide.api.problems import MEDIA_TYPE, refuse
from ebbtide.api.tokens import Principal, principal_of, recognise
from ebbtide.contracts.http import Problem
from ebbtide.contracts.ids import NAME

Asking: TypeAlias = Request[None, Principal, State]
"""A request whose ``auth`` says who asks."""

POSITION_MAX = 2**53 - 1
"""Where readers of JSON stop telling numbers apart; the database takes none above 2**63."""
PositionQuery = Annotated[int, QueryParameter(ge=0, le=POSITION_MAX)]
NameQuery = Annotated[str, QueryParameter(pattern=f"^({NAME.pattern})?$")]
"""What nothing can be called is refused here: the database does not even take every text."""

_PROBLEMS = {
    400: "The request is malformed.",
    401: "No token, or a wrong one.",
    403: "This token may not do that.",
    404: "There is no such thing, or not for this token.",
    409: "The id is in use for another job.",
    413: "The body is larger than this path takes.",
    422: "A field is wrong; the problem names it and says what to do.",
    503: "The log or a server does not answer; asking again is safe.",
}
PROBLEMS = {
    status: ResponseSpec(Problem, description=words, media_type=MEDIA_TYPE, generate_examples=False)
    for status, words in _PROBLEMS.items()
}
"""What any path may answer instead, for the schema."""

REACH_TIMEOUT_S = 5.0
_EVENT_STREAM = "text/event-stream"
_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
ALIVE = b": waiting\n\n"
END = b"event: end\ndata: {}\n\n"
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def door_of(request: Asking) -> Door:
    """Give the door that the application was made for."""
    door: Door = request.app.state.door
    return door


async def reached(door: Door, position: int) -> None:
    """Wait, within a bound, until the door has read up to ``position``.

    Raises:
        Unavailable: it has not; the caller may ask again.
    """
    if position > door.projector.position:
        await door.source.reached(position, REACH_TIMEOUT_S)


def trace_of(request: Asking) -> str:
    """Give the caller's trace id (W3C trace context), or nothing."""
    given = request.headers.get("traceparent", "")
    match = _TRACEPARENT.fullmatch(given) if given else None
    return match[1] if match else ""


def wants_stream(request: Asking) -> bool:
    """Say whether the caller asked for server-sent events."""
    return _EVENT_STREAM in request.headers.get("accept", "")


def stream(lines: AsyncIterator[bytes]) -> Stream:
    """Answer with server-sent events."""
    return Stream(lines, media_type=_EVENT_STREAM, headers=_STREAM_HEADERS)


async def authenticate(request: Asking) -> None:
    """Let through who shows a token that opens this door, and remember who it is.

    It runs before anything of the body is read. It is no guard, for which the framework copies the
    handler each time, and no plain function, which would be run on a thread.

    Raises:
        Refusal: 401 for no token or a wrong one, without saying what is wrong with it; 403 for a
            kind that has no business here.
    """
    shown = _shown(request)
    if not shown:
        hint = "send Authorization: Bearer ebb_…; `ebb token create` makes one"
        raise refuse(401, "auth.missing", "this needs a token", hint)
    door = door_of(request)
    token = recognise(door.picture.tokens, shown)
    if token is None:
        hint = "check EBB_TOKEN; it may have been revoked"
        raise refuse(401, "auth.unknown", "this token opens nothing", hint)
    principal = principal_of(token)
    if principal is None:
        detail = f"a token of kind {token.kind!r} does not open this door"
        raise refuse(403, "auth.kind", detail, "use a member's, viewer's or admin's token")
    request.scope["auth"] = principal


def _shown(request: Asking) -> str:
    for name, value in request.scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if scheme.lower() == "bearer" else ""
    return ""


def only_admin(request: Asking) -> None:
    """Refuse whoever is no admin.

    Raises:
        Refusal: 403.
    """
    if request.auth.kind != "admin":
        raise refuse(403, "auth.admin", "only an admin may do this", "use an admin's token")
