"""A connection whose answers leave whole: uvicorn writes head and body apart, each a system call.

What is written in one pass of the loop is sent at its end. Streams still flow: every piece of one
is written in a pass of its own.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class WholeAnswers(HttpToolsProtocol):
    """uvicorn's own protocol, on a transport that gathers writes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new connection."""
        super().connection_made(_Gathering(transport))  # type: ignore[arg-type]


class _Gathering:
    """A transport; all but writing and closing is the real one's."""

    __slots__ = ("_pieces", "_real", "_soon")

    def __init__(self, real: asyncio.Transport) -> None:
        self._real = real
        self._pieces: list[bytes] = []
        self._soon = asyncio.get_running_loop().call_soon

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def write(self, data: bytes) -> None:
        """Send ``data`` at the end of this pass of the loop."""
        if not self._pieces:
            self._soon(self._flush)
        self._pieces.append(data)

    def close(self) -> None:
        """Send what waits, then close."""
        self._flush()
        self._real.close()

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces and not self._real.is_closing():
            self._real.write(b"".join(pieces))
