"""The one file that speaks HTTP: a kept connection, time limits, retries of what may be repeated.

``http.client`` because it is there and quick to import. One connection serves one thread.
"""

import http.client
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, NamedTuple
from urllib.parse import urlsplit

import msgspec

from ebbtide.client.errors import Refused
from ebbtide.contracts.errors import Malformed, NotFound, Rejected, Unavailable
from ebbtide.contracts.http import Problem

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0
"""How long the platform may take for an answer that does not wait for anything."""
PATIENCE_S = 5.0
"""How long a request is repeated while the platform starts again."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
BLOCK_BYTES = 128 * 1024
LINE_BYTES_MAX = 1024 * 1024

Body = bytes | IO[bytes] | None
_BROKEN = (OSError, http.client.HTTPException)


class NobodyThere(Unavailable):
    """Nothing ever listened at the address: it is said at once, not after patience has run out."""

    retryable = False


class Answer(NamedTuple):
    """A successful answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """Speaks to one address as one holder of a token."""

    def __init__(self, url: str, token: str) -> None:
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            hint = "write http://host:port"
            raise Malformed(
                Rejected(
                    code="settings", field="EBB_URL", detail=f"{url!r} is no address", hint=hint
                )
            )
        self.url = url.rstrip("/")
        self._address = address
        self._base = address.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._was_reached = False
        self._kept: http.client.HTTPConnection | None = None

    def call(
        self,
        method: str,
        path: str,
        body: Body = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = ANSWER_TIMEOUT_S,
        patience_s: float = PATIENCE_S,
    ) -> Answer:
        """Ask, and go on asking for ``patience_s`` (0: ask once, for what must not happen twice).

        Raises:
            Refused: the platform said no.
            NotFound: the thing does not exist, or not for this token.
            Unavailable: nobody answered, or not in time.
        """
        if patience_s == 0:
            self.close()  # a kept connection may have been closed by the other side meanwhile
        pause_s, ends_at = FIRST_PAUSE_S, time.monotonic() + patience_s
        while True:
            try:
                return self._once(method, path, body, headers or {}, timeout_s)
            except (Unavailable, Refused) as error:
                if not error.retryable or time.monotonic() + pause_s > ends_at:
                    raise
            time.sleep(pause_s * (0.5 + os.urandom(1)[0] / 255))
            pause_s = min(pause_s * 4, LONGEST_PAUSE_S)
            if body is not None and not isinstance(body, bytes):
                body.seek(0)

    def _once(
        self, method: str, path: str, body: Body, headers: Mapping[str, str], timeout_s: float
    ) -> Answer:
        try:
            self._kept = self._kept or self._connect()
            response = self._exchange(self._kept, method, path, body, headers, timeout_s)
            data = response.read(ANSWER_BYTES_MAX + 1)
        except _BROKEN as error:
            self.close()
            raise self._unavailable(error) from error
        self._was_reached = True
        if len(data) > ANSWER_BYTES_MAX:
            self.close()
            raise Unavailable(f"{self.url} answered more than {ANSWER_BYTES_MAX} bytes")
        if response.will_close:
            self.close()
        _check(response.status, data)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status, headers, data)

    def _connect(self) -> http.client.HTTPConnection:
        kind = (
            http.client.HTTPSConnection
            if self._address.scheme == "https"
            else http.client.HTTPConnection
        )
        host, port = self._address.hostname or "", self._address.port
        connection = kind(host, port, timeout=CONNECT_TIMEOUT_S, blocksize=BLOCK_BYTES)
        connection.connect()
        return connection

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Body,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> http.client.HTTPResponse:
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        connection.request(method, self._base + path, body, {**self._headers, **headers})
        return connection.getresponse()

    @contextmanager
    def stream(
        self, path: str, headers: Mapping[str, str], silence_s: float
    ) -> Iterator[Iterator[bytes]]:
        """Open a connection of its own and give the lines that come, until it ends.

        Raises:
            Refused, NotFound, Unavailable: as :meth:`call`; also when nothing comes for
            ``silence_s``.
        """
        try:
            connection = self._connect()
        except _BROKEN as error:
            raise self._unavailable(error) from error
        try:
            response = self._exchange(connection, "GET", path, None, headers, silence_s)
            self._was_reached = True
            if response.status >= 400:
                _check(response.status, response.read(LINE_BYTES_MAX))
            yield self._lines(response)
        except _BROKEN as error:
            raise self._unavailable(error) from error
        finally:
            connection.close()

    def _lines(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        while line := response.readline(LINE_BYTES_MAX):
            yield line.rstrip(b"\r\n")

    def _unavailable(self, error: Exception) -> Unavailable:
        if isinstance(error, ConnectionRefusedError):
            kind = Unavailable if self._was_reached else NobodyThere
            return kind(f"nothing listens at {self.url}; is the platform up? (`ebb up`)")
        if isinstance(error, TimeoutError):
            return Unavailable(f"{self.url} did not answer in time")
        return Unavailable(f"{self.url} cannot be reached: {str(error) or type(error).__name__}")

    def close(self) -> None:
        """Let go of the kept connection."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _check(status: int, data: bytes) -> None:
    if status < 400:
        return
    try:
        problem = msgspec.json.decode(data, type=Problem)
    except msgspec.DecodeError:
        detail = f"answered with status {status} and no reason"
        problem = Problem(status=status, code=f"http.{status}", title="", detail=detail)
    if status == 404 and problem.code in ("not_found", "http.404"):
        raise NotFound(problem.detail)
    raise Refused(problem)
