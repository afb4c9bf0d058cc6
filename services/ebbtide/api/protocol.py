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
"""Request line and headers, or what follows a body in pieces.

Without a bound, one that never ends would fill the memory.
"""


class Connection(WholeAnswers):
    """One connection."""

    _unread_bytes = 0
    _got_on = False

    def data_received(self, data: bytes) -> None:
        """Read on; give up on a head that is too long.

        Where something was read whole, nobody knows how little of ``data`` came after it: one piece
        may hold a thousand requests and the beginning of the next.
        """
        self._got_on = False
        super().data_received(data)
        self._unread_bytes = 0 if self._got_on else self._unread_bytes + len(data)
        if self._unread_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            detail = f"request line and headers have more than {HEAD_BYTES_MAX} bytes"
            self._refuse(refuse(431, "http.head_too_large", detail))

    def on_headers_complete(self) -> None:
        """Count anew."""
        self._got_on = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count anew: a body has bounds of its own."""
        self._got_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Count anew."""
        self._got_on = True
        super().on_message_complete()

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
