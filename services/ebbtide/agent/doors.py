"""The node's door for its workers: a Unix socket on which they say what only they know.

One JSON object per line each way. A worker shows its key, which names it and is sealed by the
node; what it says about itself it cannot say about another. Workers hold no credential of the bus.
"""

import asyncio
import hmac
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import structlog

from ebbtide.agent.model import WorkerKey, parse_key
from ebbtide.agent.runtimes.plans import password
from ebbtide.contracts.agents import Count, Text

NAME = "door.sock"
LINE_MAX = 16 * 1024
TALK_S = 30.0
"""A worker that has connected must have said its line by then."""
TALKS_MAX = 512
_log = structlog.get_logger()


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says: ``commit`` of a checkpoint, or ``progress``."""

    key: str
    say: str
    step: Count = 0
    folder: str = ""
    digest: Text = ""
    bytes: Count = 0
    numbers: dict[str, float] = {}


Hear = Callable[[WorkerKey, Said], Awaitable[str]]
"""Gives what was wrong, or nothing."""


class Door:
    """Listens for workers; what they say goes to ``hear``."""

    def __init__(self, state: Path, secret: bytes, hear: Hear) -> None:
        self._state = state
        self._secret = secret
        self._hear = hear
        self._server: asyncio.Server | None = None
        self._talks = 0

    async def open(self) -> None:
        """Begin to listen."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        (self._state / NAME).unlink(missing_ok=True)
        folder = os.open(self._state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # By way of the folder's descriptor: a socket's path may have 107 bytes, a state
            # folder's more.
            listener.bind(f"/proc/self/fd/{folder}/{NAME}")
        finally:
            os.close(folder)
        (self._state / NAME).chmod(0o600)
        self._server = await asyncio.start_unix_server(self._talk, sock=listener, limit=LINE_MAX)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._talks += 1
        try:
            if self._talks <= TALKS_MAX:
                async with asyncio.timeout(TALK_S):
                    line = await reader.readline()
                    answer = await self._answer(line)
                    writer.write(msgspec.json.encode(answer) + b"\n")
                    await writer.drain()
        except (TimeoutError, OSError, ValueError) as error:
            _log.debug("door.broken_talk", error=str(error))
        finally:
            self._talks -= 1
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, object]:
        try:
            said = msgspec.json.decode(line, type=Said)
            key = self._who(said.key)
        except (msgspec.MsgspecError, ValueError) as error:
            return {"ok": False, "error": str(error)}
        if key is None:
            return {"ok": False, "error": "this key opens nothing here"}
        wrong = await self._hear(key, said)
        return {"ok": not wrong, "error": wrong}

    def _who(self, shown: str) -> WorkerKey | None:
        key = parse_key(shown.rpartition(":")[0])
        return key if hmac.compare_digest(shown, password(self._secret, key)) else None

    async def close(self) -> None:
        """Stop listening."""
        if self._server:
            self._server.close()
            await self._server.wait_closed()
