"""Hears of commits by LISTEN, on a connection of its own: for a process too eager to poll.

What it hears are hints. It promises neither each nor once; who needs every event reads the log.
"""

import asyncio
from collections.abc import Callable

import asyncpg
import structlog

from ebbtide.contracts.errors import EbbtideError
from ebbtide.eventlog import sql
from ebbtide.eventlog.connection import BACKOFF_FIRST_S, BACKOFF_MAX_S, DRIVER_ERRORS, connect

CHANNEL = "ebbtide_log"
CHECK_S = 5.0
"""How often the server is asked whether it still speaks to us: a cut cable says nothing."""

_QUERIES = sql.load("ebbtide.eventlog")
_log = structlog.get_logger()


class Ear:
    """Calls ``heard`` with the head's position after commits of any process, until closed."""

    def __init__(self, dsn: str, heard: Callable[[int], None]) -> None:
        self._dsn = dsn
        self._heard = heard
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            Unavailable: the server does not answer.
        """
        connection = await self._attach()
        self._task = asyncio.create_task(self._run(connection))

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self, connection: asyncpg.Connection) -> None:
        while True:
            try:
                await self._hold(connection)
            except DRIVER_ERRORS as error:
                _log.warning("log.not_listening", error=str(error) or type(error).__name__)
            finally:
                connection.terminate()
            connection = await self._attach_again()

    async def _hold(self, connection: asyncpg.Connection) -> None:
        """Tell the head now and then, until the connection is lost."""
        while not self._lost.is_set():
            row = await connection.fetchrow(_QUERIES["head"])
            if row is not None:
                self._heard(row["position"])
            try:
                async with asyncio.timeout(CHECK_S):
                    await self._lost.wait()
            except TimeoutError:
                continue

    async def _attach_again(self) -> asyncpg.Connection:
        delay_s = BACKOFF_FIRST_S
        while True:
            try:
                return await self._attach()
            except EbbtideError:
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, BACKOFF_MAX_S)

    async def _attach(self) -> asyncpg.Connection:
        self._lost = asyncio.Event()
        return await connect(self._dsn, self._greet)

    async def _greet(self, connection: asyncpg.Connection) -> None:
        lost = self._lost
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(CHANNEL, self._on_notify)

    def _on_notify(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._heard(int(str(payload)))
