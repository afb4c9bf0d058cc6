"""HTTP as uvicorn speaks it, but with refusals in the one shape that all errors of the door have.

What cannot be read, has a head without end, or comes on one connection too many is refused here:
no handler ever sees it. Nothing else of uvicorn's is changed.
"""

import msgspec
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from ebbtide.api.problems import MEDIA_TYPE, RETRY_AFTER_S, problem_of, refuse
from ebbtide.api.transport import WholeAnswers
from ebbtide.contracts.errors import Unavailable

HEAD_BYTES_MAX = 64 * 1024
"""Request line and headers; without a bound, one that never ends would fill the memory."""


class Connection(WholeAnswers):
    """One connection."""

    _head_bytes: int | None = None

    def data_received(self, data: bytes) -> None:
        """Read on; give up on a head that is too long."""
        super().data_received(data)
        if self._head_bytes is not None and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                detail = f"request line and headers have more than {HEAD_BYTES_MAX} bytes"
                self._refuse(refuse(431, "http.head_too_large", detail))

    def on_message_begin(self) -> None:
        """Begin to count."""
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Count no more: a body has bounds of its own."""
        self._head_bytes = None
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        del msg  # uvicorn's own words
        self._refuse(refuse(400, "http.malformed", "this cannot be read as an HTTP request"))

    def _refuse(self, error: Exception) -> None:
        status, headers, body = _answer(error)
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        self.transport.write(STATUS_LINE[status] + lines + b"\r\n" + body)
        self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        super()._start_asgi_task(cycle, _busy if app is service_unavailable else app)


def _answer(error: Exception) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    problem = problem_of(error)
    body = msgspec.json.encode(problem)
    headers = [
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    return problem.status, headers, body


async def _busy(_: Scope, __: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    error = Unavailable("too many connections are open; come back in a moment")
    status, headers, body = _answer(error)
    headers.append((b"retry-after", str(RETRY_AFTER_S).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
