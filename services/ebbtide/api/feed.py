"""Who waits for news of a job: long polls and followers of events.

Everything here is bounded: a follower that does not keep up is cut off (it comes back with the
position it has seen), and beyond a fixed number of waiting requests the next one is told to come
later. It holds no truth: what it hands out are the log's own events.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.errors import Unavailable
from ebbtide.contracts.events import job_of
from ebbtide.contracts.ids import JobId

WAITERS_MAX = 8192
"""Requests that may wait at once; each costs a connection and a few kilobytes."""
FOLLOWERS_MAX = 512
"""Event streams that may be open at once."""
BACKLOG_MAX = 10_000
"""Events kept for one follower; one that is further behind is cut off and reads the log again."""


class Follower:
    """One open stream of events: of one job, or of everything."""

    def __init__(self) -> None:
        self._backlog: deque[Recorded] = deque()
        self._news = asyncio.Event()
        self._closed = False

    def offer(self, recorded: Recorded) -> None:
        """Take one event, or cut the follower off if it is too far behind."""
        if len(self._backlog) >= BACKLOG_MAX:
            self._closed = True
        if not self._closed:
            self._backlog.append(recorded)
        self._news.set()

    def close(self) -> None:
        """End the stream after what is already there."""
        self._closed = True
        self._news.set()

    async def batches(self, every_s: float) -> AsyncIterator[list[Recorded]]:
        """Give events as they come; an empty list after each ``every_s`` without any."""
        while True:
            if not self._backlog and not self._closed:
                try:
                    async with asyncio.timeout(every_s):
                        await self._news.wait()
                except TimeoutError:
                    yield []
                    continue
            self._news.clear()
            batch = list(self._backlog)
            self._backlog.clear()
            if batch:
                yield batch
            elif self._closed:
                return


class Feed:
    """Hands events and changes to those who wait for them."""

    def __init__(self) -> None:
        self._waiters: dict[JobId, list[asyncio.Future[None]]] = {}
        self._waiting = 0
        self._followers: dict[JobId | None, list[Follower]] = {}
        self._following = 0
        self.closed = False

    def publish(self, recorded: Recorded) -> None:
        """Hand an event to its job's followers and those of everything; wake its waiters."""
        job = job_of(recorded.body)
        if self._following:
            for key in {job, None}:
                for follower in self._followers.get(key, ()):
                    follower.offer(recorded)
        if job is not None and self._waiting:
            for future in self._waiters.pop(job, ()):
                if not future.done():
                    future.set_result(None)

    @contextmanager
    def waiting(self, job: JobId) -> Iterator[asyncio.Future[None]]:
        """Give a future that is done at the next event of ``job``, or at shutdown.

        Look at the job inside, then await: what happens in between is not missed.
        """
        if self._waiting >= WAITERS_MAX:
            raise Unavailable("too many requests are waiting; come back in a moment")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.closed:
            future.set_result(None)
        self._waiters.setdefault(job, []).append(future)
        self._waiting += 1
        try:
            yield future
        finally:
            self._waiting -= 1
            self._forget(job, future)

    def _forget(self, job: JobId, future: asyncio.Future[None]) -> None:
        waiters = self._waiters.get(job)
        if waiters is not None and future in waiters:
            waiters.remove(future)
            if not waiters:
                del self._waiters[job]

    def follow(self, job: JobId | None) -> Follower:
        """Begin to collect events of ``job`` (None: of everything); end with :meth:`leave`."""
        if self._following >= FOLLOWERS_MAX or self.closed:
            raise Unavailable("too many event streams are open; come back in a moment")
        follower = Follower()
        self._followers.setdefault(job, []).append(follower)
        self._following += 1
        return follower

    def leave(self, job: JobId | None, follower: Follower) -> None:
        """Stop collecting."""
        self._followers[job].remove(follower)
        self._following -= 1
        if not self._followers[job]:
            del self._followers[job]

    def close(self) -> None:
        """Let every waiter and follower go: the process is about to end."""
        self.closed = True
        for futures in self._waiters.values():
            for future in futures:
                if not future.done():
                    future.set_result(None)
        for followers in self._followers.values():
            for follower in followers:
                follower.close()
