"""Waiters and followers: bounded, and nothing is missed."""

import asyncio

import pytest

from ebbtide.api import feed as feeds
from ebbtide.api.feed import Feed, Follower
from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.errors import Unavailable
from ebbtide.contracts.ids import JobId
from ebbtide.testing import said
from ebbtide.testing.builders import job_name, recorded

JOB, OTHER = job_name(1), job_name(2)


def _event(position: int, job: JobId = JOB) -> Recorded:
    return recorded(said.queued(job), position)


async def _all(follower: Follower) -> list[int]:
    return [one.position async for batch in follower.batches(0.01) for one in batch]


async def test_a_waiter_is_woken_by_its_own_job_only() -> None:
    feed = Feed()
    with feed.waiting(JOB) as news:
        feed.publish(_event(1, OTHER))
        assert not news.done()
        feed.publish(_event(2))
        assert news.done()


async def test_a_waiter_that_gave_up_leaves_nothing_behind() -> None:
    feed = Feed()
    with feed.waiting(JOB):
        pass
    assert feed._waiters == {}


async def test_too_many_waiters_are_told_to_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "WAITERS_MAX", 1)
    feed = Feed()
    with feed.waiting(JOB), pytest.raises(Unavailable), feed.waiting(OTHER):
        pass


async def test_a_follower_hears_its_job_and_one_of_everything_all() -> None:
    feed = Feed()
    one, everything = feed.follow(JOB), feed.follow(None)
    for position, job in ((1, JOB), (2, OTHER), (3, JOB)):
        feed.publish(_event(position, job))
    feed.close()
    assert await _all(one) == [1, 3]
    assert await _all(everything) == [1, 2, 3]


async def test_a_follower_that_left_hears_no_more() -> None:
    feed = Feed()
    follower = feed.follow(JOB)
    feed.leave(JOB, follower)
    feed.publish(_event(1))
    follower.close()
    assert await _all(follower) == []


async def test_a_quiet_follower_gives_signs_of_life() -> None:
    follower = Follower()
    batches = follower.batches(0.001)
    assert await anext(batches) == []
    follower.offer(_event(1))
    assert [one.position for one in await anext(batches)] == [1]


async def test_a_follower_that_is_too_slow_is_cut_off_after_what_it_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "BACKLOG_MAX", 3)
    follower = Follower()
    for position in range(1, 10):
        follower.offer(_event(position))
    assert await _all(follower) == [1, 2, 3]


async def test_too_many_followers_are_told_to_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "FOLLOWERS_MAX", 1)
    feed = Feed()
    feed.follow(JOB)
    with pytest.raises(Unavailable):
        feed.follow(None)


async def test_closing_lets_everybody_go() -> None:
    feed = Feed()
    follower = feed.follow(JOB)
    with feed.waiting(JOB) as news:
        feed.close()
        await asyncio.wait_for(news, 1)
    with feed.waiting(JOB) as late:
        assert late.done()
    assert await _all(follower) == []
