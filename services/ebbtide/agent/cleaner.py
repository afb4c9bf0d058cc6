"""What follows a worker's end once the log holds it: ship its output, keep a tombstone, clean.

Done in batches in a thread, so that a thousand short workers cost few syncs; and only in this
order, so that whatever stops it in the middle, the next agent does the rest.
"""

import asyncio
from collections.abc import Callable

import structlog

from ebbtide.agent.logs import Shipper
from ebbtide.agent.runtimes import Runtime
from ebbtide.agent.supervisor import Worker
from ebbtide.agent.tombstones import Tombstones

GATHER_S = 0.2
"""Ended workers of this time are cleaned together; until then their logs are read from the node."""
AGAIN_S = 5.0
_log = structlog.get_logger()


class Cleaner:
    """The queue of workers that are over."""

    def __init__(
        self,
        runtime: Runtime,
        shipper: Shipper,
        tombstones: Tombstones,
    ) -> None:
        self._runtime = runtime
        self._shipper = shipper
        self._tombstones = tombstones
        self._over: dict[Worker, None] = {}
        self._woken = asyncio.Event()

    def put(self, one: Worker) -> None:
        """Have a worker cleaned up after; may be said twice."""
        if not one.over:
            one.over = True
            self._over[one] = None
            self._woken.set()

    async def run(self, forget: Callable[[list[Worker]], None]) -> None:
        """Clean until cancelled; ``forget`` hears of those whose logs the store has whole."""
        while True:
            await self._woken.wait()
            await asyncio.sleep(GATHER_S)
            self._woken.clear()
            batch = list(self._over)
            self._over.clear()
            done = await asyncio.to_thread(self._ship_and_write, batch)
            left = [one for one in batch if one not in done]
            if left:
                asyncio.get_running_loop().call_later(AGAIN_S, self._again, left)
            # From here on a log is read from the store, and the slot may be wiped.
            forget(done)
            for one in await asyncio.to_thread(self._wipe, done):
                self._runtime.free(one.slot)

    def _ship_and_write(self, batch: list[Worker]) -> list[Worker]:
        """Ship what is left of each and bury it for good; give those that are complete."""
        done = []
        for one in batch:
            try:
                self._shipper.ship_rest(one)
                done.append(one)
            except OSError as error:
                _log.warning("log.not_shipped", worker=str(one.key), error=str(error))
        try:
            self._tombstones.write([one.report() for one in done])
        except OSError as error:
            _log.warning("tombstones.not_written", error=str(error))
            return []
        return done

    def _again(self, batch: list[Worker]) -> None:
        self._over.update(dict.fromkeys(batch))
        self._woken.set()

    def _wipe(self, workers: list[Worker]) -> list[Worker]:
        """Clean slots; give those that are clean. The next agent tries the others again."""
        clean = []
        for one in workers:
            try:
                self._runtime.clean(one.slot)
                clean.append(one)
            except OSError as error:
                _log.warning("slot.not_clean", slot=one.slot, error=str(error))
        return clean
