"""Who may pass the door, and how it says no."""

import asyncio
import socket

import pytest

from ebbtide.api.server import bind
from ebbtide.contracts.errors import Malformed, Unavailable
from ebbtide.testing.door import RunningDoor


@pytest.mark.parametrize(
    "token", ["", "nonsense", "ebb_admin_a1_wrong", "ebb_admin_zz_x", "x" * 500]
)
async def test_a_missing_or_wrong_token_is_refused_on_every_path(
    api: RunningDoor, token: str
) -> None:
    for path in ("/v1/jobs", "/v1/status", "/v1/nodes", "/v1/tokens", "/v1/events"):
        answer = await api.ask("GET", path, token=token)
        assert answer.status == 401
        assert answer.json["code"] in ("auth.missing", "auth.unknown")
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_health_and_schema_need_no_token(api: RunningDoor) -> None:
    assert (await api.ask("GET", "/v1/health", token="")).json["status"] == "ok"
    assert "/v1/jobs" in (await api.ask("GET", "/v1/schema", token="")).json["paths"]


async def test_agents_and_jobs_do_not_pass_this_door(api: RunningDoor) -> None:
    agent = await api.token("agent", "node-1")
    job = await api.token("job", await api.submit())
    for token in (agent, job):
        answer = await api.ask("GET", "/v1/jobs", token=token)
        assert (answer.status, answer.json["code"]) == (403, "auth.kind")


async def test_another_workspaces_job_does_not_exist(any_api: RunningDoor) -> None:
    ours, theirs = await any_api.token("member", "ours"), await any_api.token("member", "theirs")
    job = await any_api.submit(token=ours)
    for method, path in (
        ("GET", f"/v1/jobs/{job}"),
        ("GET", f"/v1/jobs/{job}/events"),
        ("GET", f"/v1/jobs/{job}/logs"),
        ("POST", f"/v1/jobs/{job}/stop"),
    ):
        answer = await any_api.ask(method, path, token=theirs)
        unknown = await any_api.ask(method, path.replace(job, any_api.new_id()), token=theirs)
        assert answer.status == unknown.status == 404
    assert (await any_api.ask("GET", "/v1/jobs", token=theirs)).json["jobs"] == []
    assert (await any_api.ask("GET", "/v1/jobs?workspace=ours", token=theirs)).json["jobs"] == []
    assert (await any_api.ask("GET", "/v1/status", token=theirs)).json["jobs"] == {}


async def test_a_members_job_lands_in_the_members_workspace(api: RunningDoor) -> None:
    member = await api.token("member", "ours")
    job = await api.submit(token=member)
    assert (await api.ask("GET", f"/v1/jobs/{job}", token=member)).json["workspace"] == "ours"


async def test_a_member_cannot_submit_into_another_workspace(api: RunningDoor) -> None:
    member = await api.token("member", "ours")
    job = {"name": "a", "command": ["x"]}
    given = {"id": api.new_id(), "job": job, "workspace": "theirs"}
    answer = await api.ask("POST", "/v1/jobs", given, token=member)
    assert (answer.status, answer.json["code"]) == (403, "auth.workspace")


async def test_an_admin_submits_into_the_workspace_it_names(api: RunningDoor) -> None:
    job = await api.submit(workspace="theirs")
    assert (await api.ask("GET", f"/v1/jobs/{job}")).json["workspace"] == "theirs"


async def test_a_viewer_looks_and_does_nothing_else(api: RunningDoor) -> None:
    job = await api.submit(workspace="ours")
    viewer = await api.token("viewer", "ours")
    assert (await api.ask("GET", f"/v1/jobs/{job}", token=viewer)).status == 200
    given = {"id": api.new_id(), "job": {"name": "a", "command": ["x"]}}
    assert (await api.ask("POST", "/v1/jobs", given, token=viewer)).status == 403
    assert (await api.ask("POST", f"/v1/jobs/{job}/stop", token=viewer)).status == 403
    path = "/v1/code/sha256:" + "0" * 64
    assert (await api.ask("PUT", path, body=b"x", token=viewer)).status == 403


async def test_only_admins_handle_tokens_and_see_everybodys_events(api: RunningDoor) -> None:
    member = await api.token("member", "ours")
    for method, path in (("GET", "/v1/tokens"), ("DELETE", "/v1/tokens/a1"), ("GET", "/v1/events")):
        answer = await api.ask(method, path, token=member)
        assert (answer.status, answer.json["code"]) == (403, "auth.admin")


async def test_a_revoked_token_opens_nothing_at_once(any_api: RunningDoor) -> None:
    member = await any_api.token("member", "ours")
    name = member.split("_")[2]
    assert (await any_api.ask("GET", "/v1/jobs", token=member)).status == 200
    revoked = await any_api.ask("DELETE", f"/v1/tokens/{name}")
    again = await any_api.ask("DELETE", f"/v1/tokens/{name}")
    assert revoked.json["revoked_at"] == again.json["revoked_at"]
    assert (await any_api.ask("GET", "/v1/jobs", token=member)).status == 401


async def test_a_listed_token_shows_no_secret(api: RunningDoor) -> None:
    secret = await api.token("member", "ours")
    listed = await api.ask("GET", "/v1/tokens")
    assert secret.encode() not in listed.body
    assert {one["secret"] for one in listed.json} == {""}


async def test_no_event_holds_a_secret(api: RunningDoor) -> None:
    secret = await api.token("member", "ours")
    events = await api.ask("GET", "/v1/events")
    assert secret.split("_", 3)[3].encode() not in events.body


@pytest.mark.parametrize(
    ("kind", "subject"),
    [("member", ""), ("member", "No Spaces"), ("admin", "x"), ("agent", ""), ("job", "nope")],
)
async def test_a_token_with_an_impossible_subject_is_refused(
    api: RunningDoor, kind: str, subject: str
) -> None:
    answer = await api.ask("POST", "/v1/tokens", {"kind": kind, "subject": subject})
    assert (answer.status, answer.json["field"]) == (422, "subject")


async def test_a_token_of_an_unknown_kind_is_refused(api: RunningDoor) -> None:
    answer = await api.ask("POST", "/v1/tokens", {"kind": "king"})
    assert (answer.status, answer.json["field"]) == (422, "kind")


async def test_tokens_of_the_set_up_become_known_once(any_api: RunningDoor) -> None:
    before = len((await any_api.ask("GET", "/v1/tokens")).json)
    (any_api.folder / "tokens" / "agent-n1.token").write_text("ebb_agent_b2_secret\n")
    await any_api.stop()
    await any_api.start()
    tokens = (await any_api.ask("GET", "/v1/tokens")).json
    assert len(tokens) == before + 1
    assert {(one["kind"], one["subject"]) for one in tokens} >= {("agent", "n1"), ("admin", "")}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/nothing", 404),
        ("PUT", "/v1/jobs", 405),
        ("DELETE", "/v1/status", 405),
        ("PATCH", "/v1/health", 405),
    ],
)
async def test_unknown_paths_and_methods_are_problems_too(
    api: RunningDoor, method: str, path: str, status: int
) -> None:
    answer = await api.ask(method, path)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["status"] == status


async def test_when_the_log_is_away_the_door_says_try_again(
    api: RunningDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ebbtide.contracts.errors import Unavailable

    async def away(*_: object) -> None:
        raise Unavailable("the log's database does not answer")

    monkeypatch.setattr(api.log, "append", away)
    given = {"id": api.new_id(), "job": {"name": "a", "command": ["x"]}}
    answer = await api.ask("POST", "/v1/jobs", given)
    assert (answer.status, answer.json["code"]) == (503, "unavailable")
    assert answer.headers["retry-after"] == "1"


async def test_what_nobody_foresaw_is_answered_without_its_trace(
    api: RunningDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(api.log, "append", broken)
    given = {"id": api.new_id(), "job": {"name": "a", "command": ["x"]}}
    answer = await api.ask("POST", "/v1/jobs", given)
    assert (answer.status, answer.json["code"]) == (500, "error")
    assert b"inside" not in answer.body


async def test_many_connections_at_once_are_all_answered(api: RunningDoor) -> None:
    answers = await asyncio.gather(*(api.ask("GET", "/v1/health") for _ in range(64)))
    assert {answer.status for answer in answers} == {200}


def test_an_address_that_is_in_use_may_be_free_again() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(Unavailable, match=str(other.getsockname()[1])):
            bind("127.0.0.1", other.getsockname()[1])


def test_an_address_of_another_machine_is_a_wrong_setting() -> None:
    with pytest.raises(Malformed) as caught:
        bind("192.0.2.1", 0)
    assert caught.value.rejected.code == "settings"
