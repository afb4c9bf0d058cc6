"""Every error of the door as ``application/problem+json`` (RFC 9457); never a stack trace.

The one place that knows which status a refusal gets. Errors of the framework (unknown path, wrong
method, malformed JSON, a body that is too large) are put into the same words.
"""

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from ebbtide.contracts.errors import (
    Conflict,
    EbbtideError,
    Malformed,
    NotFound,
    Rejected,
    Unavailable,
)
from ebbtide.contracts.http import Problem

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1
DETAIL_MAX = 2000

_FAILED = Rejected(code="error", detail="something went wrong here, and it was logged")
_log = structlog.get_logger("ebbtide.api")


class Refusal(EbbtideError):
    """A no of the door, with its HTTP status."""

    code = "refused"

    def __init__(self, status: int, rejected: Rejected) -> None:
        super().__init__(rejected.detail)
        self.status = status
        self.rejected = rejected


def refuse(status: int, code: str, detail: str, hint: str = "", field: str = "") -> Refusal:
    """Make a refusal to raise."""
    return Refusal(status, Rejected(code=code, detail=detail, hint=hint, field=field))


def _problem(status: int, rejected: Rejected) -> Problem:
    return Problem(
        status=status,
        code=rejected.code,
        title=HTTPStatus(status).phrase,
        detail=rejected.detail[:DETAIL_MAX],
        field=rejected.field,
        hint=rejected.hint,
    )


def problem_of(error: Exception) -> Problem:
    """Say what went wrong, in the one shape that all errors have."""
    match error:
        case Refusal():
            return _problem(error.status, error.rejected)
        case Malformed():
            return _problem(422, error.rejected)
        case NotFound():
            return _problem(404, Rejected(code=error.code, detail=str(error)))
        case Conflict():
            return _problem(409, Rejected(code=error.code, detail=str(error), hint="try again"))
        case Unavailable():
            return _problem(503, Rejected(code=error.code, detail=str(error), hint="try again"))
        case RecursionError():
            detail = "the body is nested too deep"
            return _problem(400, Rejected(code="http.malformed", detail=detail))
        case HTTPException():
            return _framework(error)
        case _:
            return _problem(500, _FAILED)


_WORDS: Mapping[int, tuple[str, str, str]] = {
    404: ("http.no_such_path", "there is nothing at this path", "paths are listed in /v1/schema"),
    405: ("http.method", "this path does not know this method", "see /v1/schema"),
    413: ("http.too_large", "the body is larger than this path takes", ""),
    415: ("http.media_type", "this media type is not taken here", "send application/json"),
}


def _framework(error: HTTPException) -> Problem:
    status = error.status_code
    if isinstance(error, ValidationException):
        return _problem(422, _invalid(error))
    if status in _WORDS:
        code, detail, hint = _WORDS[status]
        return _problem(status, Rejected(code=code, detail=detail, hint=hint))
    if status < 500:
        return _problem(status, Rejected(code="http.malformed", detail=str(error.detail)))
    return _problem(status, _FAILED)


def _invalid(error: ValidationException) -> Rejected:
    """Name the first field that is wrong; the framework calls a whole body ``data``."""
    found = error.extra[0] if isinstance(error.extra, list) and error.extra else {}
    field, message = str(found.get("key", "")), str(found.get("message", error.detail))
    if field == "data":
        field = ""
        message = "a JSON body is needed" if message == "'data'" else message
    return Rejected(code="http.invalid", detail=message, field=field)


def on_error(_request: Request[object, object, object], error: Exception) -> Response[bytes]:  # type: ignore[type-var]  # the state is not ours
    """Answer an error; what nobody foresaw is logged with its trace, and answered without."""
    problem = problem_of(error)
    if problem.status >= 500 and not isinstance(error, Unavailable):
        _log.error("http.failed", exc_info=error)
    headers = {"Retry-After": str(RETRY_AFTER_S)} if problem.status in (429, 503) else {}
    if problem.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="ebbtide"'
    if isinstance(error, HTTPException) and error.headers:
        headers.update({key: value for key, value in error.headers.items() if key == "Allow"})
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers=headers,
    )
