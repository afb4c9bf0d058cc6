"""A connection to Postgres that comes back: one call at a time, made again on its next use.

What goes wrong becomes one of our errors here and nowhere else. A call is never repeated: whoever
made it knows whether that is safe.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import asyncpg

from ebbtide.contracts.errors import EbbtideError, InvariantBroken, Unavailable

CONNECT_TIMEOUT_S = 5.0
COMMAND_TIMEOUT_S = 8.0
"""Longer than the server's own statement timeout, so that the server's word comes first."""
CLOSE_TIMEOUT_S = 2.0
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.05, 1.0

SETTINGS: Mapping[str, str] = {
    "application_name": "ebbtide-log",
    "default_transaction_isolation": "read committed",
    # A client that freezes must not hold the log (eventlog/__init__.py, 5).
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "1s",
    "statement_timeout": "5s",
    # Plans are made while tables are empty, and kept: a sequential scan chosen then costs
    # milliseconds per call once there are events. Planned once, by index, they are right for every
    # size. Without jit=off the price that stands for "off" would make the server compile every
    # plan.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}

DRIVER_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresError,
)
"""All that a call of the driver may raise.

The internal one comes where a server dies in the middle of a word.
"""

_OUR_MISTAKES = ("22", "23", "42")
"""Classes of SQLSTATE that say that the statement is wrong, not the world."""

T = TypeVar("T")
Greeting = Callable[[asyncpg.Connection], Awaitable[None]]


class Lane:
    """One connection and the queue for it. ``greet`` is awaited on each new connection."""

    def __init__(self, dsn: str, greet: Greeting | None = None) -> None:
        self._dsn = dsn
        self._greet = greet
        self._lock = asyncio.Lock()
        self._connection: asyncpg.Connection | None = None
        self._backoff_s = 0.0
        self._not_before = 0.0
        self._failure = ""
        self._failed_at = 0.0
        self._closed = False

    async def call(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """Await ``work`` on the connection, alone on it.

        Raises:
            Unavailable: the server does not answer, or not now. Whether a statement that was under
                way was carried out is then unknown.
            InvariantBroken: the server says that the statement is wrong.
        """
        asked_at = _now_s()
        async with self._lock:
            connection = await self._connected(asked_at)
            try:
                return await work(connection)
            except DRIVER_ERRORS as error:
                if not _is_refusal(error):
                    self._drop()
                raise translated(error) from error

    async def fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run one statement and give its rows."""
        return await self.call(lambda connection: connection.fetch(query, *arguments))

    async def fetchrow(self, query: str, *arguments: Any) -> asyncpg.Record | None:
        """Run one statement and give its first row."""
        return await self.call(lambda connection: connection.fetchrow(query, *arguments))

    async def close(self) -> None:
        """Close the connection within a bound; later calls are refused."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is None or connection.is_closed():
            return
        try:
            await connection.close(timeout=CLOSE_TIMEOUT_S)
        except DRIVER_ERRORS:
            connection.terminate()

    async def _connected(self, asked_at: float) -> asyncpg.Connection:
        if self._closed:
            raise Unavailable("this log was closed")
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        # A server that is down is asked so often and no more, and one answer serves all who waited.
        if self._failed_at > asked_at:
            raise Unavailable(self._failure)
        await asyncio.sleep(max(0.0, self._not_before - _now_s()))
        try:
            self._connection = await connect(self._dsn, self._greet)
        except Unavailable as error:
            self._backoff_s = min(max(self._backoff_s * 2, BACKOFF_FIRST_S), BACKOFF_MAX_S)
            self._failure, self._failed_at = str(error), _now_s()
            self._not_before = self._failed_at + self._backoff_s
            raise
        self._backoff_s = self._not_before = self._failed_at = 0.0
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


async def connect(dsn: str, greet: Greeting | None = None) -> asyncpg.Connection:
    """Open a connection with our settings and have it greeted.

    Raises:
        Unavailable: the server does not answer or does not let us in.
        EbbtideError: what ``greet`` raises.
    """
    try:
        connection = await asyncpg.connect(
            dsn,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=COMMAND_TIMEOUT_S,
            server_settings=dict(SETTINGS),
        )
    except DRIVER_ERRORS as error:
        raise Unavailable(f"cannot connect to the log's database: {_words(error)}") from error
    try:
        if greet is not None:
            await greet(connection)
    except DRIVER_ERRORS as error:
        connection.terminate()
        raise translated(error) from error
    except BaseException:
        connection.terminate()
        raise
    return connection


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _is_refusal(error: Exception) -> bool:
    """Say whether the server refused this one statement and the connection goes on."""
    return isinstance(error, asyncpg.PostgresError) and not isinstance(
        error,
        asyncpg.PostgresConnectionError
        | asyncpg.OperatorInterventionError
        | asyncpg.ReadOnlySQLTransactionError,
    )


def translated(error: Exception, database: str = "the log's database") -> EbbtideError:
    """Say in our words what the driver or the server said."""
    state = getattr(error, "sqlstate", None) or ""
    if isinstance(error, asyncpg.PostgresError) and state.startswith(_OUR_MISTAKES):
        return InvariantBroken(f"{database} refused a statement: {_words(error)}")
    return Unavailable(f"{database} does not answer: {_words(error)}")


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
