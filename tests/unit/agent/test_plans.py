"""What is executed for a desired worker: the whole environment, as people program against it."""

import json
from pathlib import Path

import msgspec

from ebbtide.agent.model import Note
from ebbtide.agent.runtimes.plans import Host, plan
from ebbtide.agent.runtimes.process import frame
from ebbtide.agent.sitter import Plan as ReadPlan
from ebbtide.contracts.agents import DesiredAttempt, DesiredWorker
from ebbtide.contracts.ids import JobId, Workspace

GOLDEN = Path(__file__).with_name("golden_plan.json")
HOST = Host(
    node="n1",
    address="10.0.0.1",
    store="/store",
    door="/state/door.sock",
    interpreter="/env/bin",
    home="/home/one",
    temporary="/tmp",
    has_gpus=False,
    secret=b"s" * 32,
)
WORKER = DesiredWorker(
    worker=3,
    role="worker",
    index=2,
    command=("python", "train.py"),
    resources={"cpu": 1500, "memory": 2048},
)
ATTEMPT = DesiredAttempt(
    job=JobId("job_main_01J00000000000000000000001"),
    name="digits",
    workspace=Workspace("default"),
    epoch=1,
    attempt=2,
    round=1,
    type="xgboost",
    code="sha256:abc",
    env={"MINE": "1", "RANK": "of the job's own making", "PATH": "/mine"},
    when_cut_off="stop",
    grace_s=30,
    world=4,
    workers=(WORKER,),
    resume_step=40,
    resume_folder="step-0000000040",
)


def test_a_plan_is_what_it_always_was() -> None:
    made = plan(HOST, ATTEMPT, WORKER, "10.0.0.9:20001", Note(stop=True, port=20001))
    assert json.loads(msgspec.json.encode(made)) == json.loads(GOLDEN.read_text())


def environment(host: Host = HOST, **changes: object) -> dict[str, str]:
    worker = msgspec.structs.replace(WORKER, **changes)
    return plan(host, ATTEMPT, worker, "10.0.0.9:20001", Note()).env


def test_a_worker_with_devices_sees_those_and_counts_them() -> None:
    env = environment(devices=0b1101)
    assert (env["CUDA_VISIBLE_DEVICES"], env["NPROC_PER_NODE"]) == ("0,2,3", "3")


def test_a_worker_with_a_share_of_a_device_is_one_process() -> None:
    env = environment(devices=0b10, share_milli=500)
    assert (env["CUDA_VISIBLE_DEVICES"], env["NPROC_PER_NODE"]) == ("1", "1")


def test_a_worker_without_devices_sees_none_on_a_node_that_has_some() -> None:
    env = environment(msgspec.structs.replace(HOST, has_gpus=True))
    assert env["CUDA_VISIBLE_DEVICES"] == ""


def test_nothing_is_said_of_devices_where_there_are_none() -> None:
    assert "CUDA_VISIBLE_DEVICES" not in environment()


def test_a_sitter_reads_the_order_that_the_agent_writes() -> None:
    made = plan(HOST, ATTEMPT, WORKER, "10.0.0.9:20001", Note(stop=True, port=20001))
    read = ReadPlan(frame(made, 7, "/state/workers/0007", "/state/lease"))
    assert read.key == str(made.key).encode()
    assert (read.slot, read.work, read.lease) == (7, b"/state/workers/0007/work", b"/state/lease")
    assert read.args == [b"python", b"train.py"]
    assert read.env == {name.encode(): value.encode() for name, value in made.env.items()}


def test_only_what_ends_with_the_lease_is_told_of_it() -> None:
    made = plan(HOST, ATTEMPT, WORKER, "10.0.0.9:20001", Note(stop=False))
    assert ReadPlan(frame(made, 7, "/state/workers/0007", "/state/lease")).lease == b""


def test_an_empty_value_and_one_with_an_equals_sign_arrive_unchanged() -> None:
    odd = msgspec.structs.replace(ATTEMPT, env={"EMPTY": "", "EQ": "a=b", "U": "ü"})
    made = plan(HOST, odd, WORKER, "10.0.0.9:20001", Note())
    env = ReadPlan(frame(made, 0, "/w", "")).env
    assert (env[b"EMPTY"], env[b"EQ"], env[b"U"]) == (b"", b"a=b", "ü".encode())
