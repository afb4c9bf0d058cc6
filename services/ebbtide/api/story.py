"""A job's story: everything that was said about it, in the order of the log, and then what follows.

Read from the streams that belong to the job; of its pool's stream only the events that speak of
it, whose positions the picture remembers.
"""

import asyncio
from collections.abc import AsyncIterator

from ebbtide.api.door import READ_TIMEOUT_S, Door
from ebbtide.api.model import Alive
from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.errors import Unavailable
from ebbtide.contracts.events import JobFailed, JobRejected, JobStopped, JobSucceeded
from ebbtide.contracts.ids import JobId
from ebbtide.model import job as jobs

PAGE = 500
KEEP_ALIVE_S = 15.0
"""A comment goes down a quiet stream this often, so that nobody on the way takes it for dead."""


async def told(
    door: Door, alive: Alive, after: int, seam: int, limit: int | None = None
) -> list[Recorded]:
    """Give what was told after position ``after`` and up to ``seam``: the first ``limit`` of it.

    ``seam`` must have been folded before ``alive`` was looked up. Streams are read one after the
    other: beyond it, of what is said meanwhile, a later event may be seen without an earlier one.
    """
    job = alive.row.id
    streams = (jobs.stream(job), jobs.workers_stream(job), jobs.checkpoint_stream(job))
    story: list[Recorded] = []
    for stream in streams:
        story += await door.story(stream)
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            pools = [position for position in alive.row.story if after < position <= seam]
            for position in pools[:limit]:
                story += await door.log.read(position - 1, 1)
    except TimeoutError as error:
        raise Unavailable("the log does not answer") from error
    wanted = [recorded for recorded in story if after < recorded.position <= seam]
    return sorted(wanted, key=lambda recorded: recorded.position)[:limit]


async def follow_job(door: Door, job: JobId, after: int) -> AsyncIterator[list[Recorded]]:
    """Give what follows ``after`` until the job has ended; empty lists keep the line alive.

    The first list comes as soon as the follower is let in and the past was read, whatever is in it:
    who awaits it before answering can still say that it may not be.

    Reads and live events meet at the position that had been delivered when reading began: what is
    up to there comes from the streams, what is beyond it from the feed, so nothing is told twice
    or left out.
    """
    follower = door.feed.follow(job)
    try:
        seam = door.projector.position
        alive = await door.projector.job(job)
        past = await told(door, alive, after, seam) if alive is not None else []
        for start in range(0, max(1, len(past)), PAGE):
            yield past[start : start + PAGE]
        if alive is None or alive.row.is_final:
            return
        async for batch in follower.batches(KEEP_ALIVE_S):
            yield [one for one in batch if one.position > max(seam, after)]
            if any(_ends(one) for one in batch):
                return
    finally:
        door.feed.leave(job, follower)


def _ends(recorded: Recorded) -> bool:
    return isinstance(recorded.body, JobSucceeded | JobFailed | JobStopped | JobRejected)


async def follow_all(door: Door, after: int) -> AsyncIterator[list[Recorded]]:
    """Give every event of the log after position ``after``, for ever; the first list at once."""
    follower = door.feed.follow(None)
    try:
        seam = door.projector.position
        while True:
            page = await door.log.read(after, PAGE) if after < seam else []
            yield page
            if not page:
                break
            after = page[-1].position
        async for batch in follower.batches(KEEP_ALIVE_S):
            yield [one for one in batch if one.position > after]
    finally:
        door.feed.leave(None, follower)
