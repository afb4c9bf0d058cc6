"""Logs of workers: from their agent while they run, from the store afterwards."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from ebbtide.chassis import job_logs
from ebbtide.contracts.agents import LogChunk, LogRead
from ebbtide.contracts.ids import JobId
from ebbtide.testing import said
from ebbtide.testing.door import RunningDoor
from ebbtide.testing.waiting import wait_until


async def _placed(api: RunningDoor) -> JobId:
    """Have a job placed on n1; give its id."""
    job = await api.submit()
    await _place(api, job)
    return job


async def _place(api: RunningDoor, job: JobId) -> None:
    await api.say(said.joined())
    await api.say(said.held(job), said.placed(job))


async def _ended(api: RunningDoor, job: JobId, size: int) -> None:
    await api.say(said.ended(job, 2, log_bytes=(size,)))
    await api.say(said.failed(job, 3))


def _store(api: RunningDoor, job: JobId, data: bytes, worker: int = 0) -> None:
    place = job_logs.folder(api.folder / "store", job, 1, worker)
    job_logs.write_chunk(place, 0, data, 0.0)


def _agent_has(text: bytes, *, ended: bool = False, known: bool = True) -> Callable[[bytes], bytes]:
    def answer(asked: bytes) -> bytes:
        read = msgspec.json.decode(asked, type=LogRead)
        data = text[read.offset : read.offset + read.limit]
        chunk = LogChunk(offset=read.offset, size=len(text), ended=ended, data=data, known=known)
        return msgspec.json.encode(chunk)

    return answer


async def test_a_running_workers_log_comes_from_its_node(api: RunningDoor) -> None:
    job = await _placed(api)
    await api.agent("n1", _agent_has(b"step 1\n"))
    answer = await api.ask("GET", f"/v1/jobs/{job}/logs")
    assert answer.body == b"step 1\n"
    assert answer.headers["ebb-log-attempt"] == "1"
    assert answer.headers["ebb-log-size"] == "7"
    assert answer.headers["ebb-log-ended"] == "false"


async def test_a_log_can_be_read_from_an_offset_within_a_limit(api: RunningDoor) -> None:
    job = await _placed(api)
    await api.agent("n1", _agent_has(b"0123456789"))
    answer = await api.ask("GET", f"/v1/jobs/{job}/logs?offset=3&limit=4")
    assert (answer.body, answer.headers["ebb-log-offset"]) == (b"3456", "3")


async def test_bytes_that_are_no_text_come_through_unchanged(api: RunningDoor) -> None:
    job = await _placed(api)
    await api.agent("n1", _agent_has(bytes(range(256))))
    answer = await api.ask("GET", f"/v1/jobs/{job}/logs")
    assert answer.body == bytes(range(256))
    assert answer.headers["content-type"] == "application/octet-stream"


async def test_a_log_that_the_agent_no_longer_has_comes_from_the_store(api: RunningDoor) -> None:
    job = await _placed(api)
    await api.agent("n1", _agent_has(b"", known=False))
    await asyncio.to_thread(_store, api, job, b"all of it\n")
    await _ended(api, job, 10)
    answer = await api.ask("GET", f"/v1/jobs/{job}/logs")
    assert (answer.body, answer.headers["ebb-log-ended"]) == (b"all of it\n", "true")


@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b'{"offset": -1, "size": "x"}'])
async def test_an_answer_of_an_agent_that_is_none_is_passed_over_for_the_store(
    api: RunningDoor, answer: bytes
) -> None:
    job = await _placed(api)
    await api.agent("n1", lambda _: answer)
    await asyncio.to_thread(_store, api, job, b"half")
    assert (await api.ask("GET", f"/v1/jobs/{job}/logs")).body == b"half"


async def test_a_lost_nodes_log_is_what_the_store_has_and_says_how_much_is_missing(
    api: RunningDoor,
) -> None:
    job = await _placed(api)
    await api.say(said.lost())
    await asyncio.to_thread(_store, api, job, b"half")
    await _ended(api, job, 10)
    answer = await api.ask("GET", f"/v1/jobs/{job}/logs")
    assert answer.body == b"half"
    assert (answer.headers["ebb-log-size"], answer.headers["ebb-log-ended"]) == ("10", "true")


async def test_a_job_that_waits_for_its_places_has_an_empty_log_that_will_grow(
    api: RunningDoor,
) -> None:
    job = await api.submit()
    answer = await api.ask("GET", f"/v1/jobs/{job}/logs")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["ebb-log-ended"] == "false"


async def test_who_waits_for_a_log_gets_it_when_the_job_is_placed(api: RunningDoor) -> None:
    job = await api.submit()
    await api.agent("n1", _agent_has(b"hello\n"))
    waiting = asyncio.create_task(api.ask("GET", f"/v1/jobs/{job}/logs?wait_s=10"))
    await wait_until(lambda: api.door.feed._waiting == 1, "somebody waits")
    await _place(api, job)
    assert (await waiting).body == b"hello\n"


@pytest.mark.parametrize("query", ["worker=5", "attempt=9"])
async def test_a_worker_or_attempt_that_will_never_be_is_not_found(
    api: RunningDoor, query: str
) -> None:
    job = await _placed(api)
    await _ended(api, job, 0)
    assert (await api.ask("GET", f"/v1/jobs/{job}/logs?{query}")).status == 404


@pytest.mark.parametrize("query", ["worker=-1", "offset=-1", "limit=0", "wait_s=1e9", "attempt=x"])
async def test_a_range_that_makes_no_sense_names_its_parameter(
    api: RunningDoor, query: str
) -> None:
    job = await api.submit()
    answer = await api.ask("GET", f"/v1/jobs/{job}/logs?{query}")
    assert (answer.status, answer.json["field"]) == (422, query.split("=", maxsplit=1)[0])


async def test_a_followed_log_streams_until_the_attempt_has_ended(api: RunningDoor) -> None:
    job = await _placed(api)
    await api.agent("n1", _agent_has(b"one\ntwo\n", ended=True))
    headers = {"Accept": "text/event-stream"}
    answer = await api.ask("GET", f"/v1/jobs/{job}/logs", headers=headers)
    assert b'id: 8\nevent: log\ndata: "one\\ntwo\\n"\n\n' in answer.body
    assert answer.body.endswith(b"event: end\ndata: {}\n\n")
