"""``ebb`` as people and scripts run it: a process of its own against a real door."""

import asyncio
import json
import os
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from ebbtide.cli import exits
from ebbtide.contracts.agents import LogChunk, LogRead
from ebbtide.contracts.envelope import Append
from ebbtide.contracts.events import NodeChangeRequested, NodeCordoned, NodeUncordoned
from ebbtide.contracts.ids import JobId
from ebbtide.testing import said
from ebbtide.testing.door import RunningDoor
from ebbtide.testing.waiting import wait_until


class Done(NamedTuple):
    code: int
    out: str
    err: str


async def _start(api: RunningDoor | None, *argv: str, **environ: str) -> asyncio.subprocess.Process:
    known = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    if api is not None:
        known |= {"EBB_URL": api.url, "EBB_TOKEN": api.admin}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ebbtide.cli",
        *argv,
        env=known | environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def _finish(process: asyncio.subprocess.Process) -> Done:
    try:
        out, err = await asyncio.wait_for(process.communicate(), 30)
    except TimeoutError:
        process.kill()
        raise
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), err.decode())


async def _ebb(api: RunningDoor | None, *argv: str, **environ: str) -> Done:
    return await _finish(await _start(api, *argv, **environ))


async def _jobs(api: RunningDoor) -> list[str]:
    return [job["id"] for job in (await api.ask("GET", "/v1/jobs")).json["jobs"]]


async def _submitted(api: RunningDoor) -> str:
    async def is_there() -> bool:
        return len(await _jobs(api)) == 1

    await wait_until(is_there, "the job is submitted")
    return (await _jobs(api))[0]


async def _say_queued(api: RunningDoor) -> None:
    """Play the quota service for the one job that comes."""
    await api.say(said.queued(JobId(await _submitted(api))))


async def test_submit_prints_the_id_for_scripts_and_the_state_for_people(api: RunningDoor) -> None:
    process = await _start(api, "submit", "--name", "a", "--", "python", "train.py", "--x")
    await _say_queued(api)
    done = await _finish(process)
    assert done.code == exits.OK
    assert done.out.split() == await _jobs(api)
    assert done.err.startswith("queued: nodes.none")
    stored = (await api.ask("GET", f"/v1/jobs/{done.out.strip()}")).json["spec"]
    assert stored["command"] == ["python", "train.py", "--x"]


async def test_submit_for_programs_prints_one_object(api: RunningDoor) -> None:
    process = await _start(api, "submit", "--json", "--name", "a", "--", "x")
    await _say_queued(api)
    done = await _finish(process)
    assert json.loads(done.out)["phase"] == "queued"
    assert done.err == ""


async def test_submit_takes_a_file_with_its_code_beside_it(
    api: RunningDoor, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "train.py").write_text("print(1)")
    (folder / "job.yaml").write_text("name: a\ncommand: [python, train.py]\ncode: src\n")
    process = await _start(api, "submit", str(folder / "job.yaml"), "--priority", "9")
    await _say_queued(api)
    done = await _finish(process)
    stored = (await api.ask("GET", f"/v1/jobs/{done.out.strip()}")).json["spec"]
    assert stored["priority"] == 9
    assert stored["code"].startswith("sha256:")


async def test_a_dry_run_needs_no_platform_and_prints_the_whole_job(tmp_path: Path) -> None:
    home = str(tmp_path)
    done = await _ebb(None, "submit", "--dry-run", "--name", "a", "--", "x", EBB_HOME=home)
    assert done.code == exits.OK
    assert json.loads(done.out)["roles"]["worker"]["resources"] == {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["for_people", "for_programs"])
async def test_what_a_dry_run_prints_is_a_file_of_the_same_job(
    tmp_path: Path, form: list[str]
) -> None:
    home, file = str(tmp_path), tmp_path / "job.json"
    asked = ["--name", "a", "--cpu", "500m", "--memory", "1.5Gi", "--gpu", "h100=2", "--", "x"]
    first = await _ebb(None, "submit", "--dry-run", *form, *asked, EBB_HOME=home)
    await asyncio.to_thread(file.write_text, first.out)
    again = await _ebb(None, "submit", "--dry-run", *form, str(file), EBB_HOME=home)
    assert (again.code, again.out) == (exits.OK, first.out)


async def test_what_show_tells_programs_of_a_job_is_a_file_of_the_same_job(
    api: RunningDoor, tmp_path: Path
) -> None:
    job = {"name": "a", "command": ["x"], "roles": {"w": {"resources": {"cpu": "1500m"}}}}
    given = {"id": api.new_id(), "job": job}
    await api.ask("POST", "/v1/jobs", given)
    shown = json.loads((await _ebb(api, "show", "--json", given["id"])).out)["spec"]
    assert (await api.ask("POST", "/v1/jobs", {"id": given["id"], "job": shown})).status == 201
    assert shown["roles"]["w"]["resources"]["cpu"] == "1.5"


@pytest.mark.parametrize(
    ("outcome", "code"),
    [("succeeded", exits.OK), ("failed", exits.JOB_FAILED), ("stopped", exits.JOB_STOPPED)],
)
async def test_waiting_exits_as_the_job_does(api: RunningDoor, outcome: str, code: int) -> None:
    process = await _start(api, "submit", "--wait", "--name", "a", "--", "x")
    await _say_queued(api)
    job = JobId(await _submitted(api))
    await api.say(getattr(said, outcome)(job, 2))
    done = await _finish(process)
    assert (done.code, done.err.splitlines()[-1].split(":")[0]) == (code, outcome)


async def test_a_rejected_job_is_told_with_code_and_hint(api: RunningDoor) -> None:
    process = await _start(api, "submit", "--name", "a", "--", "x")
    await api.say(said.rejected(JobId(await _submitted(api))))
    done = await _finish(process)
    assert done.code == exits.REFUSED
    assert done.err == "rejected: quota.ceiling: too much; ask for less\n"


async def test_interrupting_a_wait_leaves_the_job_alone(api: RunningDoor) -> None:
    import signal

    process = await _start(api, "submit", "--wait", "--name", "a", "--", "x")
    await _say_queued(api)
    assert process.stderr is not None
    await asyncio.wait_for(process.stderr.readline(), 10)
    process.send_signal(signal.SIGINT)
    done = await _finish(process)
    assert (done.code, done.err) == (exits.INTERRUPTED, "")
    assert (await api.ask("GET", f"/v1/jobs/{done.out.strip()}")).json["phase"] == "queued"


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("submit",), exits.USAGE, "name: a job needs a name"),
        (("submit", "nothing.toml"), exits.USAGE, "nothing.toml: there is no such file"),
        (("submit", "--name", "a"), exits.USAGE, "command: the command is empty"),
        (("submit", "--name", "a\x1b[1m", "--", "x"), exits.USAGE, "\\x1b[1m"),
        (("submit", "--name", "a", "--cpu", "-1", "--", "x"), exits.USAGE, "resources.cpu"),
        (("submit", "--name", "a", "--cpu", "nan", "--", "x"), exits.USAGE, "resources.cpu"),
        (("submit", "--name", "a", "--memory", "9Zi", "--", "x"), exits.USAGE, "resources.memory"),
        (("submit", "--name", "a", "--workers", "0", "--", "x"), exits.USAGE, "worker.replicas"),
        (("submit", "--name", "a", "--workers", "x", "--", "x"), exits.USAGE, "--workers"),
        (("submit", "--name", "a", "--code", "/nowhere", "--", "x"), exits.USAGE, "no such folder"),
        (("submit", "--name", "a", "--id", "x", "--", "x"), exits.USAGE, "id: 'x' is not a job id"),
        (("ls", "--phase", "odd"), exits.USAGE, "phase"),
        (("ls", "--limit", "0"), exits.USAGE, "--limit"),
        (("ls", "--odd"), exits.USAGE, "--odd"),
        (("show", "job_main_x"), exits.NOT_FOUND, "there is no job 'job_main_x'"),
        (("show",), exits.USAGE, "JOB"),
        (("stop", "job_main_x"), exits.NOT_FOUND, "there is no job"),
        (("events", "job_main_x"), exits.NOT_FOUND, "there is no job"),
        (("logs", "job_main_x"), exits.NOT_FOUND, "there is no job"),
        (("logs", "job_main_x", "--worker", "two"), exits.USAGE, "--worker: 'two' is no rank"),
        (("token", "create", "king"), exits.USAGE, "king"),
        (("token", "create", "member"), exits.USAGE, "subject: a member's subject"),
        (("token", "revoke", "x"), exits.NOT_FOUND, "there is no token"),
        (("nothing",), exits.USAGE, "there is no verb 'nothing'"),
    ],
)
async def test_a_mistake_is_one_line_that_names_it(
    api: RunningDoor, argv: tuple[str, ...], code: int, words: str
) -> None:
    done = await _ebb(api, *argv)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert done.err.count("\n") == 1
    assert await _jobs(api) == []


async def test_a_file_of_a_megabyte_is_refused_at_once(api: RunningDoor, tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_text("name: " + "a" * 1_000_000)
    done = await _ebb(api, "submit", str(path))
    assert done.code == exits.USAGE
    assert "larger than 256 KiB" in done.err


async def test_a_wrong_token_is_told_and_what_to_check(api: RunningDoor) -> None:
    done = await _ebb(api, "ls", EBB_TOKEN="ebb_admin_a1_wrong")
    assert done.code == exits.REFUSED
    assert (
        done.err == "ebb ls: this token opens nothing; check EBB_TOKEN; it may have been revoked\n"
    )


async def test_without_a_platform_every_verb_says_how_to_get_one(tmp_path: Path) -> None:
    done = await _ebb(None, "ls", EBB_HOME=str(tmp_path))
    assert done.code == exits.UNAVAILABLE
    assert "`ebb up`" in done.err


async def test_ls_shows_a_table_and_for_programs_a_page(api: RunningDoor) -> None:
    job = await api.submit(name="digits")
    shown = (await _ebb(api, "ls")).out.splitlines()
    assert shown[0].split() == ["JOB", "NAME", "PHASE", "WORKERS", "AGE", "DETAIL"]
    assert shown[1].split()[:4] == [job, "digits", "submitted", "1"]
    assert json.loads((await _ebb(api, "ls", "--json")).out)["jobs"][0]["id"] == job


async def test_ls_says_how_to_see_more(api: RunningDoor) -> None:
    jobs = [await api.submit() for _ in range(3)]
    first = await _ebb(api, "ls", "--limit", "2")
    assert "there are more: --cursor" in first.err
    cursor = first.err.split()[-1]
    rest = await _ebb(api, "ls", "--cursor", cursor)
    assert rest.out.splitlines()[1].split()[0] == jobs[0]


async def test_show_tells_a_job_whole(api: RunningDoor) -> None:
    job = await api.submit(name="digits", env={"A": "1"})
    shown = (await _ebb(api, "show", job)).out
    assert f"job          {job}" in shown
    assert "role worker  1 x (cpu 1, memory 1Gi)" in shown
    assert json.loads((await _ebb(api, "show", job, "--json")).out)["spec"]["env"] == {"A": "1"}


async def test_stopping_twice_says_that_it_was_asked_before(api: RunningDoor) -> None:
    job = await api.submit()
    first, second = await _ebb(api, "stop", job), await _ebb(api, "stop", job)
    assert (first.code, first.err) == (exits.OK, f"{job}: stopping\n")
    assert (second.code, second.err) == (
        exits.OK,
        f"{job}: was asked to stop before; it is stopping\n",
    )


async def test_stopping_several_goes_on_past_one_that_is_not_there(api: RunningDoor) -> None:
    job = await api.submit()
    done = await _ebb(api, "stop", "job_main_x", job)
    assert done.code == exits.NOT_FOUND
    assert done.err.splitlines()[1] == f"{job}: stopping"


async def test_a_story_is_told_line_by_line(api: RunningDoor) -> None:
    job = await api.submit(name="digits")
    await api.say(said.queued(job))
    lines = (await _ebb(api, "events", job)).out.splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines] == [
        "submitted: digits, 1 worker, default",
        "queued under quota default",
    ]
    objects = (await _ebb(api, "events", "--json", job)).out.splitlines()
    assert [json.loads(line)["body"]["type"] for line in objects] == ["job.submitted", "job.queued"]


async def test_a_followed_story_ends_with_the_job(api: RunningDoor) -> None:
    job = await api.submit()
    process = await _start(api, "events", "-f", job)
    assert process.stdout is not None
    await asyncio.wait_for(process.stdout.readline(), 10)
    await api.say(said.stopped(job, 1))
    done = await _finish(process)
    assert (done.code, done.out.split()[-1]) == (exits.OK, "stopped")


async def test_logs_come_as_the_worker_wrote_them(api: RunningDoor) -> None:
    job = await api.submit()
    await api.say(said.joined())
    await api.say(said.held(job), said.placed(job))
    text = b"\x1b[32mstep 1\x1b[0m\r\n"

    def on_logs(asked: bytes) -> bytes:
        offset = msgspec.json.decode(asked, type=LogRead).offset
        chunk = LogChunk(offset=offset, size=len(text), ended=True, data=text[offset:])
        return msgspec.json.encode(chunk)

    await api.agent("n1", on_logs)
    done = await _ebb(api, "logs", job)
    assert (done.code, done.out) == (exits.OK, "\x1b[32mstep 1\x1b[0m\r\n")


async def test_a_token_is_printed_once_for_a_script_to_keep(api: RunningDoor) -> None:
    made = await _ebb(api, "token", "create", "viewer", "default")
    assert made.out.startswith("ebb_viewer_")
    listed = await _ebb(api, "token", "ls")
    assert made.out.strip() not in listed.out
    seen = await _ebb(api, "ls", EBB_TOKEN=made.out.strip())
    assert seen.code == exits.OK
    name = made.out.split("_")[2]
    assert (await _ebb(api, "token", "revoke", name)).code == exits.OK
    assert (await _ebb(api, "ls", EBB_TOKEN=made.out.strip())).code == exits.REFUSED


async def test_nodes_are_listed_with_what_is_free(api: RunningDoor) -> None:
    job = await api.submit()
    await api.say(said.joined())
    await api.say(said.held(job), said.placed(job))
    lines = (await _ebb(api, "node", "ls")).out.splitlines()
    assert lines[1].split(maxsplit=4) == [
        "n1",
        "default",
        "ready",
        "1",
        "cpu 3 / 4, memory 15Gi / 16Gi",
    ]


async def test_a_node_is_shown_with_why_it_is_cordoned_and_what_is_still_asked(
    api: RunningDoor,
) -> None:
    await api.say(said.joined())
    cordoned = NodeCordoned(node=said.NODE, mode="drain", why="new\nfans")
    await api.say(Append(stream=f"node-{said.NODE}", body=cordoned))
    wish = NodeChangeRequested(node=said.NODE, change="uncordon")
    await api.say(Append(stream=f"node-{said.NODE}", body=wish))
    lines = (await _ebb(api, "node", "show", said.NAME)).out.splitlines()
    assert lines[1:3] == [
        "drain: new\\nfans",
        "uncordon is asked for, and done once node_health runs",
    ]


async def test_who_waits_for_a_drain_is_told_when_somebody_takes_it_back(api: RunningDoor) -> None:
    job, stream = await api.submit(), f"node-{said.NODE}"
    await api.say(said.joined(), said.held(job), said.placed(job))
    process = await _start(api, "node", "drain", said.NAME, "--wait")
    assert process.stderr is not None

    async def asked() -> bool:
        return len(await api.log.read_stream(stream)) > 1

    await wait_until(asked, "the drain is asked for")
    await api.say(Append(stream=stream, body=NodeCordoned(node=said.NODE, mode="drain", why="")))
    assert b"draining, 1 job left" in await process.stderr.readline()
    await api.say(Append(stream=stream, body=NodeUncordoned(node=said.NODE)))
    done = await _finish(process)
    assert (done.code, "not drained any more" in done.err) == (exits.REFUSED, True)


@pytest.mark.parametrize("name", ["", "a/b", "../jobs", "N1", "n1\n"])
async def test_what_cannot_name_a_node_is_named(api: RunningDoor, name: str) -> None:
    done = await _ebb(api, "node", "cordon", name)
    assert (done.code, repr(name) in done.err) == (exits.USAGE, True)


async def test_a_reader_that_leaves_early_is_no_error(api: RunningDoor) -> None:
    for _ in range(3):
        await api.submit()
    process = await asyncio.create_subprocess_shell(
        f"{shlex.quote(sys.executable)} -m ebbtide.cli ls | true; echo ${{PIPESTATUS[0]}}",
        env={**os.environ, "EBB_URL": api.url, "EBB_TOKEN": api.admin},
        executable="/bin/bash",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    done = await _finish(process)
    assert (done.out, done.err) == ("0\n", "")
