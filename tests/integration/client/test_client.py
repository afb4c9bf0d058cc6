"""The SDK against a real door."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from ebbtide.client import Client, Refused, transport
from ebbtide.client import client as clients
from ebbtide.contracts.agents import LogChunk, LogRead
from ebbtide.contracts.errors import Malformed, NotFound, Unavailable
from ebbtide.contracts.http import CreateToken, Submit
from ebbtide.contracts.ids import JobId
from ebbtide.testing import said
from ebbtide.testing.door import RunningDoor
from ebbtide.testing.waiting import wait_until

T = TypeVar("T")


async def _with(api: RunningDoor, call: Callable[[Client], T], token: str = "") -> T:
    """Have ``call`` ask on a thread, as programs do."""

    def ask() -> T:
        with Client(api.url, token or api.admin) as client:
            return call(client)

    return await asyncio.to_thread(ask)


def _job(**fields: object) -> dict[str, object]:
    return {"name": "test", "command": ["true"], **fields}


async def test_a_submitted_job_can_be_read_back(api: RunningDoor) -> None:
    job = await _with(api, lambda client: client.submit(_job(priority=7)))
    detail = await _with(api, lambda client: client.get(job))
    assert (detail.id, detail.priority, detail.phase) == (job, 7, "submitted")


async def test_submitting_twice_with_one_id_is_one_job(api: RunningDoor) -> None:
    name = api.new_id()
    for _ in range(2):
        await _with(api, lambda client: client.submit(_job(), id=name))
    page = await _with(api, lambda client: client.list())
    assert [job.id for job in page.jobs] == [name]


async def test_what_is_read_of_a_job_can_be_submitted_again(api: RunningDoor) -> None:
    roles = {"w": {"resources": {"cpu": 0.5, "memory": "1.5Gi"}}}
    first = await _with(api, lambda client: client.submit(_job(roles=roles)))
    spec = (await _with(api, lambda client: client.get(first))).spec
    again = await _with(api, lambda client: client.submit(spec))
    assert (await _with(api, lambda client: client.get(again))).spec == spec


async def test_a_mistake_is_found_before_anything_is_sent() -> None:
    client = Client("http://127.0.0.1:1", "t", "main")
    with pytest.raises(Malformed) as caught:
        client.submit(_job(roles={"worker": {"resources": {"cpu": float("nan")}}}))
    assert caught.value.rejected.field == "roles.worker.resources.cpu"


async def test_a_long_story_is_read_whole(api: RunningDoor) -> None:
    job = await api.submit()
    await api.say(*(said.saved(job, step) for step in range(1100)))
    story = await _with(api, lambda client: list(client.events(job)))
    assert [event.body.get("step") for event in story] == [None, *range(1100)]


async def test_a_page_that_is_full_and_the_last_ends_a_story(api: RunningDoor) -> None:
    job = await api.submit()
    await api.say(*(said.saved(job, step) for step in range(499)))
    assert len(await _with(api, lambda client: list(client.events(job)))) == 500


async def test_a_refusal_carries_the_problem(api: RunningDoor) -> None:
    name = await api.submit()
    other = Submit(id=name, job=_job(priority=1))
    with pytest.raises(Refused) as caught:
        await _with(api, lambda client: client.send(other))
    assert (caught.value.code, caught.value.problem.field) == ("job.id_taken", "id")


async def test_a_wrong_token_is_refused_at_once(api: RunningDoor) -> None:
    with pytest.raises(Refused) as caught:
        await _with(api, lambda client: client.status(), token="ebb_admin_a1_wrong")
    assert caught.value.problem.status == 401


async def test_an_unknown_job_is_not_found(api: RunningDoor) -> None:
    calls: list[Callable[[Client], object]] = [
        lambda client: client.get(api.new_id()),
        lambda client: client.stop(api.new_id()),
        lambda client: list(client.events(api.new_id())),
        lambda client: list(client.logs(api.new_id())),
    ]
    for call in calls:
        with pytest.raises(NotFound):
            await _with(api, call)


async def test_a_dry_run_stores_nothing(api: RunningDoor) -> None:
    asked = Submit(id=api.new_id(), job=_job())
    spec = await _with(api, lambda client: client.dry_run(asked))
    assert spec.restart.max_restarts == 3
    assert (await _with(api, lambda client: client.list())).jobs == ()


async def test_code_is_packed_uploaded_once_and_named_by_its_digest(
    api: RunningDoor, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)")
    (folder / "job.toml").write_text('name = "a"\ncommand = ["python", "train.py"]\ncode = "."\n')
    jobs = [await _with(api, lambda client: client.submit(folder / "job.toml")) for _ in range(2)]
    page = await _with(api, lambda client: [client.get(job) for job in jobs])
    codes = {detail.spec.code for detail in page}
    assert len(codes) == 1
    stored = list((api.folder / "store" / "code").iterdir())
    assert [f"sha256:{path.name.split('.')[0]}" for path in stored] == list(codes)


async def test_waiting_for_the_decision_and_the_end(api: RunningDoor) -> None:
    job = await api.submit()
    decided = asyncio.create_task(_with(api, lambda client: client.wait_decided(job, 10)))
    ended = asyncio.create_task(_with(api, lambda client: client.wait(job)))
    await api.say(said.queued(job))
    assert (await decided).phase == "queued"
    await api.say(said.failed(job, 2))
    assert (await ended).phase == "failed"


async def test_waiting_within_a_time_gives_the_job_as_it_is(api: RunningDoor) -> None:
    job = await api.submit()
    detail = await _with(api, lambda client: client.wait(job, timeout_s=0.05))
    assert detail.phase == "submitted"


async def test_a_followed_story_goes_on_over_a_restart_of_the_platform(
    api: RunningDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "RECONNECT_S", 0.02)
    job = await api.submit()
    seen: list[str] = []

    def follow(client: Client) -> None:
        seen.extend(event.type for event in client.events(job, follow=True))

    following = asyncio.create_task(_with(api, follow))
    await api.say(said.queued(job))
    port = api.port
    await api.stop()
    await api.start(port)
    await api.say(said.failed(job, 2))
    await following
    assert seen == ["job.submitted", "job.queued", "job.failed"]


async def test_a_call_is_repeated_while_the_platform_starts_again(api: RunningDoor) -> None:
    def ask(client: Client) -> str:
        client.health()
        loop.call_soon_threadsafe(asked.set)
        stopped.result(timeout=10)
        return client.submit(_job())

    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    import concurrent.futures

    stopped: concurrent.futures.Future[None] = concurrent.futures.Future()
    asking = asyncio.create_task(_with(api, ask))
    await asked.wait()
    port = api.port
    await api.stop()
    stopped.set_result(None)
    await asyncio.sleep(0)
    await api.start(port)
    assert (await asking).startswith("job_main_")


async def test_where_nothing_ever_listened_it_says_so_at_once() -> None:
    client = Client("http://127.0.0.1:1", "t")
    with pytest.raises(Unavailable, match="ebb up"):
        await asyncio.wait_for(asyncio.to_thread(client.status), 2)


async def test_a_platform_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "PATIENCE_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        client = transport.Transport(f"http://127.0.0.1:{deaf.getsockname()[1]}", "t")
        with pytest.raises(Unavailable, match="in time"):
            await asyncio.to_thread(
                lambda: client.call("GET", "/v1/health", timeout_s=0.05, patience_s=0)
            )
        client.close()


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://x", "http://"])
def test_an_address_that_is_none_is_named(url: str) -> None:
    with pytest.raises(Malformed) as caught:
        Client(url, "t")
    assert caught.value.rejected.field == "EBB_URL"


async def test_tokens_are_made_listed_and_revoked(api: RunningDoor) -> None:
    made = await _with(
        api, lambda client: client.create_token(CreateToken(kind="member", subject="ours"))
    )
    await _with(api, lambda client: client.submit(_job()), token=made.secret)
    listed = await _with(api, lambda client: client.tokens())
    assert made.id in {token.id for token in listed}
    await _with(api, lambda client: client.revoke_token(made.id))
    with pytest.raises(Refused):
        await _with(api, lambda client: client.status(), token=made.secret)


async def _placed(api: RunningDoor) -> JobId:
    job = await api.submit()
    await api.say(said.joined())
    await api.say(said.held(job), said.placed(job))
    return job


async def test_a_followed_log_goes_on_with_the_next_attempt_until_the_job_ends(
    api: RunningDoor,
) -> None:
    texts = {1: b"first try\n", 2: b"second try\n"}

    def on_logs(asked: bytes) -> bytes:
        read = msgspec.json.decode(asked, type=LogRead)
        text = texts[read.attempt]
        chunk = LogChunk(offset=read.offset, size=len(text), ended=True, data=text[read.offset :])
        return msgspec.json.encode(chunk)

    await api.agent("n1", on_logs)
    job = await _placed(api)

    seen: list[tuple[int, bytes]] = []

    def follow(client: Client) -> None:
        seen.extend((piece.attempt, piece.data) for piece in client.logs(job, follow=True))

    following = asyncio.create_task(_with(api, follow))
    await wait_until(lambda: bool(seen), "the first attempt's log is there")
    await api.say(said.ended(job, 2, log_bytes=(10,)))
    await api.say(said.restarting(job, 3))
    await api.say(said.released(job), said.held(job, 2), said.placed(job, 4, 2))
    await api.say(said.failed(job, 5))
    await following
    assert seen == [(1, b"first try\n"), (2, b"second try\n")]


async def test_what_was_lost_of_a_log_is_said(
    api: RunningDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "LOST_TRIES", 0)
    job = await _placed(api)
    await api.say(said.lost())
    await api.say(said.ended(job, 2, log_bytes=(10,)))
    await api.say(said.failed(job, 3))
    pieces = await _with(api, lambda client: list(client.logs(job)))
    assert [(piece.data, piece.missing) for piece in pieces] == [(b"", 10)]


async def test_an_answer_without_a_reason_is_still_an_error(api: RunningDoor) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\noops")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(Refused, match="502"), Client(url, "t") as client:
            await asyncio.to_thread(client.health)
