"""Keeps the api's picture up to date in memory at once, and in the views a moment later.

Reads are answered from memory for what is alive or fresh, and from the views for the rest. The
views lag by :data:`PAUSE_S` on purpose: many events of one job become one write, and the write
never competes with the commits that start a job. It never appends to the log.
"""

import asyncio
from collections.abc import Sequence

import structlog

from ebbtide.api.feed import Feed
from ebbtide.api.model import Alive, Picture, Row, Token
from ebbtide.api.views import Batch, JobQuery, Views
from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.errors import EbbtideError, StaleEpoch, Unavailable
from ebbtide.contracts.ids import JobId, NodeNumber, TokenId
from ebbtide.eventlog.log import Log, Source
from ebbtide.model.node import Node

PAUSE_S = 0.05
"""How long changes gather before they are written; whoever asks is answered from memory."""
PAGE = 2000
"""Events read at a time while catching up; the views are written after each page."""
DIRTY_MAX = 50_000
"""Changed jobs that may wait for a store that does not answer; then the process starts again."""
RETRY_S = 0.5
FLUSH_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 3.0

_log = structlog.get_logger()


class Projector:
    """A listener of the log, and a part of the process that writes what changed."""

    name = "api.projector"

    def __init__(self, log: Log, source: Source, views: Views, feed: Feed) -> None:
        self._log = log
        self._source = source
        self._views = views
        self._feed = feed
        self._jobs: dict[JobId, Alive] = {}
        self._flying: dict[JobId, Alive] = {}
        self._nodes: dict[NodeNumber, Node] = {}
        self._tokens: dict[TokenId, Token] = {}
        self._epoch = 0
        self._folded = 0
        self._flushed = 0
        self._news = asyncio.Event()
        self._hurry = asyncio.Event()
        self._landed = asyncio.Condition()
        self._broken: Exception | None = None
        self.picture = Picture()

    @property
    def position(self) -> int:
        """Give the position up to which the picture is folded."""
        return self._folded

    async def start(self) -> None:
        """Load the views, rebuild those of another history or fold, and catch up by pages."""
        await self._views.open()
        head = await self._log.head()
        stored = await self._views.load()
        if stored.epoch != head.epoch or stored.position > head.number:
            await self._views.reset(head.epoch)
            stored = await self._views.load()
        self.picture = stored.picture
        self._epoch = head.epoch
        self._folded = self._flushed = stored.position
        while self._folded < head.number:
            self._fold(await self._log.read(self._folded, PAGE))
            await self._flush()
        self._source.attach(self, self._folded)

    def deliver(self, events: Sequence[Recorded]) -> None:
        """Fold events and hand them on. What goes wrong is kept, and :meth:`run` raises it."""
        try:
            self._fold(events)
        except Exception as error:  # noqa: BLE001 - a listener must not raise; run() does, at once
            self._broken = error
            self._news.set()

    def _fold(self, events: Sequence[Recorded]) -> None:
        for recorded in events:
            if recorded.epoch > self._epoch:
                raise StaleEpoch(
                    f"the log is in epoch {recorded.epoch}, the views in {self._epoch}"
                )
            changed = self.picture.apply(recorded)
            self._folded = recorded.position
            if isinstance(changed, Alive):
                self._jobs[changed.row.id] = changed
            elif isinstance(changed, Node):
                self._nodes[changed.number] = changed
            elif changed is not None:
                self._tokens[changed.id] = changed
            self._feed.publish(recorded)
        if len(self._jobs) > DIRTY_MAX:
            raise Unavailable(f"{len(self._jobs)} changed jobs wait for the views' store")
        self._news.set()

    async def run(self) -> None:
        """Write what changed, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._broken is not None:
                raise self._broken
            await self._pause(PAUSE_S)
            try:
                await self._flush()
            except (Unavailable, TimeoutError) as error:
                _log.warning("views.not_written", position=self._flushed, error=repr(error))
                self._news.set()
                await asyncio.sleep(RETRY_S)

    async def _pause(self, pause_s: float) -> None:
        """Let changes gather, unless a reader waits for them."""
        try:
            async with asyncio.timeout(pause_s):
                await self._hurry.wait()
        except TimeoutError:
            pass
        self._hurry.clear()

    async def _flush(self) -> None:
        if self._flushed == self._folded:
            return
        jobs, nodes, tokens = self._jobs, self._nodes, self._tokens
        position = self._folded
        batch = Batch(
            epoch=self._epoch,
            position=position,
            jobs=tuple(jobs.values()),
            nodes=tuple(nodes.values()),
            tokens=tuple(tokens.values()),
            counts=self.picture.counts,
        )
        self._flying, self._jobs, self._nodes, self._tokens = jobs, {}, {}, {}
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                await self._views.save(batch)
        except BaseException:
            self._jobs = jobs | self._jobs
            self._nodes = nodes | self._nodes
            self._tokens = tokens | self._tokens
            raise
        finally:
            self._flying = {}
        self._flushed = position
        async with self._landed:
            self._landed.notify_all()

    async def stop(self) -> None:
        """Write what is left, within a bound; the rest is folded again at the next start."""
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._flush()
        except (EbbtideError, TimeoutError):
            pass
        await self._views.close()

    def fresh(self, job: JobId) -> Alive | None:
        """Give a job that is alive or not yet in the views, as of now."""
        return self.picture.jobs.get(job) or self._jobs.get(job) or self._flying.get(job)

    async def job(self, job: JobId) -> Alive | None:
        """Give any job as of now."""
        return self.fresh(job) or await self._views.job(job)

    async def page(self, query: JobQuery, timeout_s: float) -> list[Row]:
        """Give a page of jobs, with everything in it that is folded now."""
        await self._written(self._folded, timeout_s)
        return await self._views.page(query)

    async def _written(self, position: int, timeout_s: float) -> None:
        if self._flushed >= position:
            return
        self._hurry.set()
        try:
            async with asyncio.timeout(timeout_s), self._landed:
                await self._landed.wait_for(lambda: self._flushed >= position)
        except TimeoutError as error:
            raise Unavailable("the views are behind; try again in a moment") from error
