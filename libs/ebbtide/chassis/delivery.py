"""How a bus hands messages to a handler: one at a time, in order, whatever the handler raises.

A handler belongs to a service; the bus only promises that one bad message never silences the rest,
and that losing a connection does not cancel a handler in the middle of its work.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_QUEUED = 65_536
"""Messages waiting for one slow handler; more are dropped, and whoever listens must catch up."""


async def hand_over(handler: Callable[[T], Awaitable[None]], item: T, subject: str) -> None:
    """Await ``handler`` with ``item``; log what it raises. Cancellation passes."""
    try:
        await handler(item)
    except Exception:  # noqa: BLE001 - whatever a handler raises, the next message must still come
        # Imported here because an agent's start pays for every import and failures are rare.
        import structlog

        structlog.get_logger(__name__).exception("bus.handler_failed", subject=subject)


async def run_alone(call: Callable[[], Awaitable[None]], what: str) -> None:
    """Await a call without arguments the way handlers are awaited: a failure is told."""

    async def ignoring(_: None) -> None:
        await call()

    await hand_over(ignoring, None, what)


class Feed(Generic[T]):
    """Hands items to a handler one at a time and in order; its task lives while something waits.

    ``pause`` is awaited before each item; tests let a network's delay pass there.
    """

    def __init__(
        self,
        handler: Callable[[T], Awaitable[None]],
        subject: str,
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._handler = handler
        self._subject = subject
        self._pause = pause
        self._waiting: deque[T] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        # Handlers run as those who listen: what a speaker has set is not theirs.
        self._context = contextvars.copy_context()

    def put(self, item: T) -> bool:
        """Queue an item; False if the handler is closed or hopelessly behind."""
        if self._closed or len(self._waiting) >= MAX_QUEUED:
            return False
        self._waiting.append(item)
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._run(), context=self._context)
        return True

    async def close(self) -> None:
        """Hand over nothing more; a handler may close its own feed."""
        self._closed = True
        self._waiting.clear()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def drained(self) -> None:
        """Return once nothing waits and no handler runs."""
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                if self._pause is not None:
                    await self._pause()
                if self._waiting:
                    await hand_over(self._handler, self._waiting.popleft(), self._subject)
        finally:
            self._task = None
