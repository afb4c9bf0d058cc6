"""``/v1/jobs`` as callers see it."""

import asyncio

import pytest

from ebbtide.contracts.ids import JobId
from ebbtide.testing import said
from ebbtide.testing.door import RunningDoor
from ebbtide.testing.waiting import wait_until


async def test_a_submitted_job_is_there_at_once_with_every_default(any_api: RunningDoor) -> None:
    job = await any_api.submit(name="digits")
    answer = await any_api.ask("GET", f"/v1/jobs/{job}")
    assert answer.status == 200
    assert answer.json["phase"] == "submitted"
    assert answer.json["workspace"] == "default"
    assert answer.json["spec"]["roles"]["worker"]["resources"] == {"cpu": "1", "memory": "1Gi"}


async def test_the_same_submit_twice_is_one_job_with_the_same_answer(any_api: RunningDoor) -> None:
    given = {"id": any_api.new_id(), "job": {"name": "a", "command": ["true"]}}
    first = await any_api.ask("POST", "/v1/jobs", given)
    second = await any_api.ask("POST", "/v1/jobs", given)
    assert (first.status, first.body) == (second.status, second.body) == (201, first.body)
    assert len((await any_api.ask("GET", "/v1/jobs")).json["jobs"]) == 1


async def test_submits_of_one_id_at_once_are_one_job(any_api: RunningDoor) -> None:
    given = {"id": any_api.new_id(), "job": {"name": "a", "command": ["true"]}}
    answers = await asyncio.gather(*(any_api.ask("POST", "/v1/jobs", given) for _ in range(8)))
    assert {(answer.status, answer.body) for answer in answers} == {(201, answers[0].body)}


async def test_another_job_under_a_used_id_is_refused(any_api: RunningDoor) -> None:
    given = {"id": any_api.new_id(), "job": {"name": "a", "command": ["true"]}}
    await any_api.ask("POST", "/v1/jobs", given)
    other = {"id": given["id"], "job": {"name": "b", "command": ["true"]}}
    answer = await any_api.ask("POST", "/v1/jobs", other)
    assert (answer.status, answer.json["code"], answer.json["field"]) == (409, "job.id_taken", "id")


async def test_a_dry_run_answers_the_job_as_it_would_be_stored_and_stores_nothing(
    api: RunningDoor,
) -> None:
    given = {"id": api.new_id(), "job": {"name": "a", "command": ["true"]}}
    answer = await api.ask("POST", "/v1/jobs?dry_run=true", given)
    assert answer.status == 200
    assert answer.json["restart"] == {"max_restarts": 3, "backoff_s": 1}
    assert (await api.ask("GET", "/v1/jobs")).json["jobs"] == []


ODD = {"cpu": "1500m", "memory": "1536Mi", "gpu/h100": 2}


async def test_what_a_dry_run_answers_is_the_same_job_when_it_is_submitted(
    api: RunningDoor,
) -> None:
    job = {"name": "a", "command": ["true"], "roles": {"w": {"resources": ODD}}}
    given = {"id": api.new_id(), "job": job}
    assert (await api.ask("POST", "/v1/jobs", given)).status == 201
    whole = (await api.ask("POST", "/v1/jobs?dry_run=true", given)).json
    answer = await api.ask("POST", "/v1/jobs", {"id": given["id"], "job": whole})
    assert answer.status == 201, "the same id with the same job is one job"
    assert whole["roles"]["w"]["resources"] == {"cpu": "1.5", "memory": "1536Mi", "gpu/h100": "2"}


async def test_the_specification_of_a_job_is_the_same_job_when_it_is_submitted(
    any_api: RunningDoor,
) -> None:
    job = {"name": "a", "command": ["true"], "roles": {"w": {"resources": ODD}}}
    given = {"id": any_api.new_id(), "job": job}
    assert (await any_api.ask("POST", "/v1/jobs", given)).status == 201
    spec = (await any_api.ask("GET", f"/v1/jobs/{given['id']}")).json["spec"]
    answer = await any_api.ask("POST", "/v1/jobs", {"id": given["id"], "job": spec})
    assert answer.status == 201, "the same id with the same job is one job"


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"name": "a", "command": ["x"], "cmd": 1}, "cmd"),
        ({"name": "a", "command": "x"}, "command"),
        ({"name": "a", "command": []}, "command"),
        ({"name": "a\u0007", "command": ["x"]}, "name"),
        ({"name": "a", "command": ["x"], "priority": "high"}, "priority"),
        ({"name": "a", "command": ["x"], "roles": {"w": {"replicas": -1}}}, "roles.w.replicas"),
        (
            {"name": "a", "command": ["x"], "roles": {"w": {"resources": {"cpu": "-1"}}}},
            "roles.w.resources.cpu",
        ),
        ({"name": "a", "command": ["x"], "code": "sha256:" + "0" * 64}, "code"),
    ],
)
async def test_a_mistake_in_a_job_is_answered_with_its_field(
    api: RunningDoor, job: JobId, field: str
) -> None:
    answer = await api.ask("POST", "/v1/jobs", {"id": api.new_id(), "job": job})
    assert (answer.status, answer.json["field"]) == (422, field)
    assert answer.headers["content-type"] == "application/problem+json"
    assert (await api.ask("GET", "/v1/jobs")).json["jobs"] == []


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1]", b"\xff\xfe", b'{"id": 1, "job": {}}', b'{"id": "x", "job": {}, "z": 1}'],
)
async def test_a_malformed_body_is_a_problem_and_no_trace(api: RunningDoor, body: bytes) -> None:
    answer = await api.ask("POST", "/v1/jobs", body=body)
    assert answer.status in (400, 422)
    assert answer.json["code"].startswith("http.")
    assert b"Traceback" not in answer.body


async def test_a_body_of_more_than_a_mebibyte_is_refused(api: RunningDoor) -> None:
    answer = await api.ask("POST", "/v1/jobs", body=b" " * (1024 * 1024 + 1))
    assert (answer.status, answer.json["code"]) == (413, "http.too_large")


async def test_a_job_id_of_another_cell_is_refused(api: RunningDoor) -> None:
    given = {"id": "job_other_01J00000000000000000000000", "job": {"name": "a", "command": ["x"]}}
    answer = await api.ask("POST", "/v1/jobs", given)
    assert (answer.status, answer.json["code"]) == (422, "job.id")


async def test_pages_give_every_job_once_newest_first(any_api: RunningDoor) -> None:
    jobs = [await any_api.submit() for _ in range(7)]
    seen, cursor = [], ""
    while True:
        page = (await any_api.ask("GET", f"/v1/jobs?limit=3&cursor={cursor}")).json
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
        if not cursor:
            break
    assert seen == jobs[::-1]


async def test_a_list_can_be_narrowed_by_phase_and_name(any_api: RunningDoor) -> None:
    waiting, other = await any_api.submit(name="a"), await any_api.submit(name="b")
    await any_api.say(said.queued(other))
    by_phase = (await any_api.ask("GET", "/v1/jobs?phase=queued&phase=running")).json["jobs"]
    by_name = (await any_api.ask("GET", "/v1/jobs?name=a")).json["jobs"]
    assert [job["id"] for job in by_phase] == [other]
    assert [job["id"] for job in by_name] == [waiting]


async def test_mine_are_only_those_that_this_token_submitted(any_api: RunningDoor) -> None:
    member = await any_api.token("member", "default")
    mine = await any_api.submit(token=member)
    await any_api.submit()
    listed = (await any_api.ask("GET", "/v1/jobs?mine=true", token=member)).json["jobs"]
    assert [job["id"] for job in listed] == [mine]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=x",
        "cursor=x",
        "cursor=-1",
        "phase=odd",
        "min_position=x",
        "min_position=9007199254740992",
        "name=%00",
        "workspace=%00",
    ],
)
async def test_a_query_that_makes_no_sense_names_its_parameter(
    api: RunningDoor, query: str
) -> None:
    answer = await api.ask("GET", f"/v1/jobs?{query}")
    assert answer.status == 422
    assert answer.json["field"] == query.split("=", maxsplit=1)[0]


async def test_a_queued_job_without_nodes_says_so(api: RunningDoor) -> None:
    job = await api.submit()
    await api.say(said.queued(job))
    assert (await api.ask("GET", f"/v1/jobs/{job}")).json["why"].startswith("nodes.none")


async def test_a_rejected_job_shows_code_and_detail(any_api: RunningDoor) -> None:
    job = await any_api.submit()
    await any_api.say(said.rejected(job))
    seen = (await any_api.ask("GET", f"/v1/jobs/{job}")).json
    assert (seen["phase"], seen["code"], seen["why"]) == (
        "rejected",
        "quota.ceiling",
        "too much; ask for less",
    )


async def test_waiting_for_the_decision_ends_with_it(any_api: RunningDoor) -> None:
    job = await any_api.submit()
    waiting = asyncio.create_task(any_api.ask("GET", f"/v1/jobs/{job}?wait=decided&timeout_s=10"))
    await wait_until(lambda: any_api.door.feed._waiting == 1, "somebody waits")
    await any_api.say(said.queued(job))
    assert (await waiting).json["phase"] == "queued"


async def test_waiting_for_the_end_sleeps_through_other_changes(api: RunningDoor) -> None:
    job = await api.submit()
    waiting = asyncio.create_task(api.ask("GET", f"/v1/jobs/{job}?wait=final&timeout_s=10"))
    await wait_until(lambda: api.door.feed._waiting == 1, "somebody waits")
    await api.say(said.queued(job))
    await api.say(said.failed(job, 2))
    assert (await waiting).json["phase"] == "failed"


async def test_waiting_too_long_gives_the_job_as_it_is(api: RunningDoor) -> None:
    job = await api.submit()
    answer = await api.ask("GET", f"/v1/jobs/{job}?wait=final&timeout_s=0.05")
    assert (answer.status, answer.json["phase"]) == (200, "submitted")


async def test_a_read_waits_for_the_position_it_names(any_api: RunningDoor) -> None:
    answer = await any_api.ask("GET", "/v1/jobs?min_position=1")
    assert answer.status == 200


async def test_an_unknown_job_is_not_found(any_api: RunningDoor) -> None:
    answer = await any_api.ask("GET", f"/v1/jobs/{any_api.new_id()}")
    assert (answer.status, answer.json["code"]) == (404, "not_found")


async def test_stopping_twice_is_stopping_once(any_api: RunningDoor) -> None:
    job = await any_api.submit()
    first = (await any_api.ask("POST", f"/v1/jobs/{job}/stop", {"reason": "enough"})).json
    second = (await any_api.ask("POST", f"/v1/jobs/{job}/stop")).json
    assert (first["verdict"], second["verdict"]) == ("asked", "already_asked")
    assert first["position"] == second["position"]
    assert first["phase"] == second["phase"] == "stopping"


async def test_stops_that_race_with_other_steps_leave_one_stop(any_api: RunningDoor) -> None:
    job = await any_api.submit()
    stops = [any_api.ask("POST", f"/v1/jobs/{job}/stop") for _ in range(6)]
    answers = [one.json for one in await asyncio.gather(*stops)]
    story = await any_api.log.read_stream(f"job-{job}")
    assert len(story) == 2
    assert {one["position"] for one in answers} == {story[-1].position}


async def test_stopping_a_job_that_has_ended_says_how_it_is(any_api: RunningDoor) -> None:
    job = await any_api.submit()
    await any_api.say(said.stopped(job, 1))
    answer = await any_api.ask("POST", f"/v1/jobs/{job}/stop")
    assert answer.status == 200
    assert (answer.json["verdict"], answer.json["phase"]) == ("already_final", "stopped")


async def test_the_callers_trace_becomes_the_jobs(api: RunningDoor) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    given = {"id": api.new_id(), "job": {"name": "a", "command": ["x"]}}
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    await api.ask("POST", "/v1/jobs", given, headers=headers)
    assert (await api.log.read_stream(f"job-{given['id']}"))[0].trace == trace


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/tokens", "/v1/jobs/x/stop"])
async def test_json_that_is_nested_too_deep_is_malformed(api: RunningDoor, path: str) -> None:
    answer = await api.ask("POST", path, body=b'{"a":' * 3000 + b"1" + b"}" * 3000)
    assert (answer.status, answer.json["code"]) == (400, "http.malformed")
