"""A job's story and everybody's events, as JSON and as server-sent events."""

import asyncio
import http.client
import json
from typing import Any

import pytest

from ebbtide.api import feed as feeds
from ebbtide.testing import said
from ebbtide.testing.door import RunningDoor
from ebbtide.testing.waiting import wait_until


class Following:
    """Reads a stream of server-sent events on a thread."""

    def __init__(self, api: RunningDoor, path: str, last: str = "", token: str = "") -> None:
        self.events: list[tuple[str, str, Any]] = []
        self.ended = False
        self._connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=20)
        self._headers = {
            "Authorization": f"Bearer {token or api.admin}",
            "Accept": "text/event-stream",
        }
        if last:
            self._headers["Last-Event-ID"] = last
        self._path = path
        self.reading = asyncio.create_task(asyncio.to_thread(self._read))

    def _read(self) -> None:
        self._connection.request("GET", self._path, headers=self._headers)
        answer = self._connection.getresponse()
        name = event_id = ""
        while line := answer.readline():
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "id":
                event_id = value
            elif field == "event":
                name = value
            elif field == "data" and name == "end":
                self.ended = True
            elif field == "data":
                self.events.append((event_id, name, json.loads(value)))
        self._connection.close()

    @property
    def names(self) -> list[str]:
        return [name for _, name, _ in self.events]


async def test_a_story_is_all_that_speaks_of_the_job_in_the_logs_order(
    any_api: RunningDoor,
) -> None:
    job, other = await any_api.submit(), await any_api.submit()
    await any_api.say(said.queued(job))
    await any_api.say(said.held(other), said.held(job))
    await any_api.say(said.started(job))
    await any_api.say(said.saved(job, 3))
    await any_api.say(said.succeeded(job, 2))
    await any_api.say(said.released(job))
    story = (await any_api.ask("GET", f"/v1/jobs/{job}/events")).json
    assert [one["body"]["type"] for one in story] == [
        "job.submitted",
        "job.queued",
        "pool.gang_placed",
        "worker.started",
        "checkpoint.committed",
        "job.succeeded",
        "pool.gang_released",
    ]
    assert [one["position"] for one in story] == sorted(one["position"] for one in story)
    assert {one["body"]["job"] for one in story} == {job}


async def test_a_story_can_be_read_from_a_position_on(api: RunningDoor) -> None:
    job = await api.submit()
    position = await api.say(said.queued(job))
    story = (await api.ask("GET", f"/v1/jobs/{job}/events?after={position - 1}")).json
    assert [one["body"]["type"] for one in story] == ["job.queued"]


async def test_a_story_comes_in_pages(any_api: RunningDoor) -> None:
    job = await any_api.submit()
    await any_api.say(said.queued(job))
    await any_api.say(said.held(job))
    await any_api.say(said.saved(job, 3))
    first = (await any_api.ask("GET", f"/v1/jobs/{job}/events?limit=2")).json
    last = first[-1]["position"]
    rest = (await any_api.ask("GET", f"/v1/jobs/{job}/events?limit=2&after={last}")).json
    assert [[one["body"]["type"] for one in page] for page in (first, rest)] == [
        ["job.submitted", "job.queued"],
        ["pool.gang_placed", "checkpoint.committed"],
    ]


async def test_a_long_story_is_never_told_in_one_answer(api: RunningDoor) -> None:
    job = await api.submit()
    await api.say(*(said.saved(job, step) for step in range(2100)))
    assert len((await api.ask("GET", f"/v1/jobs/{job}/events")).json) == 500
    assert len((await api.ask("GET", f"/v1/jobs/{job}/events?limit=2000")).json) == 2000


@pytest.mark.parametrize("limit", ["0", "-1", "2001", "all"])
async def test_a_page_has_a_size_within_bounds(api: RunningDoor, limit: str) -> None:
    job = await api.submit()
    answer = await api.ask("GET", f"/v1/jobs/{job}/events?limit={limit}")
    assert (answer.status, answer.json["field"]) == (422, "limit")


async def test_no_page_leaves_out_what_is_said_meanwhile(any_api: RunningDoor) -> None:
    job = await any_api.submit()

    async def talk() -> None:
        for step in range(40):
            await any_api.say(said.saved(job, step), said.held(job, attempt=step + 1))
        await any_api.say(said.queued(job))

    talking = asyncio.create_task(talk())
    story: list[Any] = []
    while not story or story[-1]["body"]["type"] != "job.queued":
        after = story[-1]["position"] if story else 0
        path = f"/v1/jobs/{job}/events?limit=3&after={after}"
        story += (await any_api.ask("GET", path)).json
    await talking
    kinds = [one["body"]["type"] for one in story]
    assert kinds == ["job.submitted", *["checkpoint.committed", "pool.gang_placed"] * 40, kinds[-1]]


async def test_a_long_story_is_followed_whole(api: RunningDoor) -> None:
    job = await api.submit()
    await api.say(*(said.saved(job, step) for step in range(1200)))
    await api.say(said.queued(job))
    await api.say(said.succeeded(job, 2))
    following = Following(api, f"/v1/jobs/{job}/events")
    await following.reading
    assert len(following.events) == 1203
    assert following.ended


async def test_a_revoked_token_hears_no_more_of_what_it_followed(api: RunningDoor) -> None:
    job = await api.submit(workspace="team")
    token = await api.token("viewer", "team")
    following = Following(api, f"/v1/jobs/{job}/events", token=token)
    await wait_until(lambda: following.names == ["job.submitted"], "the past was told")
    await api.ask("DELETE", f"/v1/tokens/{token.split('_')[2]}")
    await api.say(said.queued(job))
    await following.reading
    assert following.names == ["job.submitted"]
    assert not following.ended, "nothing was ended but the line"


async def test_a_followed_story_goes_on_until_the_job_has_ended(any_api: RunningDoor) -> None:
    job = await any_api.submit()
    following = Following(any_api, f"/v1/jobs/{job}/events")
    await wait_until(lambda: following.names == ["job.submitted"], "the past was told")
    await any_api.say(said.queued(job))
    await any_api.say(said.succeeded(job, 2))
    await following.reading
    assert following.names == ["job.submitted", "job.queued", "job.succeeded"]
    assert following.ended


async def test_following_a_job_that_has_ended_tells_its_story_and_ends(
    any_api: RunningDoor,
) -> None:
    job = await any_api.submit()
    await any_api.say(said.queued(job))
    await any_api.say(said.succeeded(job, 2))
    following = Following(any_api, f"/v1/jobs/{job}/events")
    await following.reading
    assert following.names == ["job.submitted", "job.queued", "job.succeeded"]
    assert following.ended


async def test_a_broken_line_goes_on_after_the_last_event_seen(any_api: RunningDoor) -> None:
    job = await any_api.submit()
    await any_api.say(said.queued(job))
    await any_api.say(said.succeeded(job, 2))
    first = Following(any_api, f"/v1/jobs/{job}/events")
    await first.reading
    again = Following(any_api, f"/v1/jobs/{job}/events", last=first.events[0][0])
    await again.reading
    assert again.names == ["job.queued", "job.succeeded"]


@pytest.mark.parametrize("path", ["/v1/jobs/{}/events", "/v1/events"])
async def test_who_would_follow_beside_too_many_is_told_to_come_later(
    api: RunningDoor, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(feeds, "FOLLOWERS_MAX", 1)
    job = await api.submit()
    first = Following(api, f"/v1/jobs/{job}/events")
    await wait_until(lambda: first.names == ["job.submitted"], "one follows")
    headers = {"Accept": "text/event-stream"}
    answer = await api.ask("GET", path.format(job), headers=headers)
    assert (answer.status, answer.json["code"]) == (503, "unavailable")
    assert answer.headers["content-type"] == "application/problem+json"
    await api.say(said.rejected(job))
    await first.reading
    assert (await api.ask("GET", f"/v1/jobs/{job}/events", headers=headers)).status == 200


async def test_a_stream_without_a_past_begins_at_once(api: RunningDoor) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=5)
    headers = {"Authorization": f"Bearer {api.admin}", "Accept": "text/event-stream"}
    await asyncio.to_thread(connection.request, "GET", "/v1/events", headers=headers)
    answer = await asyncio.to_thread(connection.getresponse)
    assert (answer.status, await asyncio.to_thread(answer.readline)) == (200, b": waiting\n")
    connection.close()


async def test_an_id_of_another_epoch_begins_the_story_again(api: RunningDoor) -> None:
    job = await api.submit()
    await api.say(said.queued(job))
    await api.say(said.succeeded(job, 2))
    following = Following(api, f"/v1/jobs/{job}/events", last="7.999")
    await following.reading
    assert following.names == ["job.submitted", "job.queued", "job.succeeded"]


async def test_an_id_that_is_none_of_ours_is_passed_over(api: RunningDoor) -> None:
    job = await api.submit()
    await api.say(said.rejected(job))
    following = Following(api, f"/v1/jobs/{job}/events", last="9" * 5000 + ".1")
    await following.reading
    assert following.names == ["job.submitted", "job.rejected"]


async def test_nothing_is_told_twice_or_left_out_while_events_stream_in(
    any_api: RunningDoor,
) -> None:
    job = await any_api.submit()
    await any_api.say(said.queued(job))

    async def talk() -> None:
        for step in range(40):
            await any_api.say(said.saved(job, step))
        await any_api.say(said.succeeded(job, 2))

    talking = asyncio.create_task(talk())
    streams = []
    for _ in range(6):
        streams.append(Following(any_api, f"/v1/jobs/{job}/events"))
        await asyncio.sleep(0)
    await talking
    for following in streams:
        await following.reading
        steps = [
            data["body"]["step"] for _, name, data in following.events if "step" in data["body"]
        ]
        assert steps == list(range(40))
        assert following.names[-1] == "job.succeeded"


async def test_everybodys_events_come_in_pages(any_api: RunningDoor) -> None:
    await any_api.submit()
    first = (await any_api.ask("GET", "/v1/events?limit=1")).json
    rest = (await any_api.ask("GET", f"/v1/events?after={first[0]['position']}")).json
    assert [one["body"]["type"] for one in first + rest] == ["token.created", "job.submitted"]


@pytest.mark.parametrize("after", ["-1", "9007199254740992", "now"])
async def test_no_events_follow_what_no_log_can_count_to(any_api: RunningDoor, after: str) -> None:
    answer = await any_api.ask("GET", f"/v1/events?after={after}")
    assert (answer.status, answer.json["field"]) == (422, "after")


async def test_everybodys_events_can_be_followed_from_the_past_into_the_present(
    any_api: RunningDoor,
) -> None:
    job = await any_api.submit()
    following = Following(any_api, "/v1/events?after=0")
    await wait_until(lambda: len(following.events) == 2, "the past was told")
    await any_api.say(said.queued(job))
    await wait_until(lambda: following.names[-1] == "job.queued", "the present is told")
    await any_api.stop()
    await following.reading
    assert not following.ended, "a shutdown is no end: the caller comes back"
    await any_api.start()
