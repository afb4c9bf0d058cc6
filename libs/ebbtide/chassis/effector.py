"""Brings the world to a level, again and again.

Never two at once, never lost, retried when it failed.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from ebbtide.contracts.errors import EbbtideError

BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.05, 2.0

_log = structlog.get_logger()


class Effector:
    """A part that awaits ``work`` once after any number of pokes.

    ``work`` compares what should be with what is and writes what differs, so running it twice is
    harmless and running it late is enough.
    """

    def __init__(self, name: str, work: Callable[[], Awaitable[None]], every_s: float) -> None:
        self.name = name
        self._work = work
        self._every_s = every_s
        self._wake = asyncio.Event()

    def poke(self) -> None:
        """Have the work done soon."""
        self._wake.set()

    async def start(self) -> None:
        """Plan a first round: nothing is known of the world yet."""
        self._wake.set()

    async def run(self) -> None:
        """Work when poked, and at least every ``every_s`` seconds."""
        delay_s = BACKOFF_FIRST_S
        while True:
            try:
                async with asyncio.timeout(self._every_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self._work()
                delay_s = BACKOFF_FIRST_S
            except EbbtideError as error:
                if not error.retryable:
                    raise
                _log.info("effect.later", effect=self.name, error=str(error))
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, BACKOFF_MAX_S)
                self._wake.set()

    async def stop(self) -> None:
        """Leave nothing behind: the next start compares everything."""
