"""Agents' reports: who is believed, and what their words add up to."""

import msgspec
import pytest

from ebbtide.contracts.agents import Report, WorkerReport, WorkerState
from ebbtide.contracts.events import GangPlaced, Place, WorkerEnded
from ebbtide.contracts.ids import NodeNumber, PoolName, QuotaName, placement_id
from ebbtide.contracts.outcomes import EndCause, Outcome
from ebbtide.fleet.inbox import Inbox, is_settled
from ebbtide.fleet.model import Picture, Workers
from ebbtide.fleet.policy import decide, outcome
from ebbtide.model.job import Job
from ebbtide.model.node import Node
from ebbtide.model.world import World
from ebbtide.testing.builders import START, TEAM, job_name, registration, spec
from ebbtide.testing.stage import Stage

JOB = job_name(1)


def _end(cause: EndCause, status: int | None = None, *, ordered: bool = False) -> WorkerEnded:
    return WorkerEnded(
        job=JOB,
        attempt=1,
        round=1,
        worker=0,
        node="n1",
        cause=cause,
        status=status,
        ordered=ordered,
    )


def _outcome(*ends: WorkerEnded, **fields: object) -> Outcome:
    job = Job(
        id=JOB, workspace=TEAM, spec=spec(), version=1, submitted=1, submitted_at=START, **fields
    )
    return outcome(job, ends)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (_end(EndCause.EXITED, 0), Outcome.SUCCEEDED),
        (_end(EndCause.EXITED, 256), Outcome.FAILED),
        (_end(EndCause.SIGNALLED, 9), Outcome.FAILED),
        (_end(EndCause.OOM, 9), Outcome.FAILED),
        (_end(EndCause.START_FAILED), Outcome.FAILED),
        (_end(EndCause.LOST), Outcome.LOST),
        (_end(EndCause.LEASE, 9), Outcome.CUT_OFF),
    ],
)
def test_an_attempt_ends_as_its_first_failure_did(end: WorkerEnded, expected: Outcome) -> None:
    assert _outcome(end) is expected


def test_an_ordered_stop_is_a_stop_whatever_the_exit() -> None:
    end = _end(EndCause.SIGNALLED, 9, ordered=True)
    assert _outcome(end, attempt_stop="stop_requested") is Outcome.STOPPED
    assert _outcome(end, attempt_stop="preempted") is Outcome.PREEMPTED


def test_an_end_ordered_by_nobody_but_the_node_is_a_cut_off() -> None:
    assert _outcome(_end(EndCause.SIGNALLED, 15, ordered=True)) is Outcome.CUT_OFF


def test_success_counts_even_where_a_stop_was_on_its_way() -> None:
    assert _outcome(_end(EndCause.EXITED, 0), attempt_stop="preempted") is Outcome.SUCCEEDED


@pytest.mark.parametrize("reason", ["preempted", "drained"])
def test_who_makes_way_by_leaving_with_0_has_not_done_its_work(reason: str) -> None:
    ends = (_end(EndCause.EXITED, 0, ordered=True), _end(EndCause.EXITED, 0))
    assert _outcome(*ends, attempt_stop=reason) is Outcome.PREEMPTED


async def _running() -> tuple[Stage, WorkerReport]:
    stage = Stage(registration("n1"), registration("n2"))
    await stage.submit(spec())
    await stage.rest()
    one = stage.job(JOB)
    report = WorkerReport(
        job=JOB,
        epoch=1,
        attempt=1,
        round=1,
        worker=0,
        state=WorkerState.ENDED,
        cause=EndCause.EXITED,
        status=0,
    )
    assert one is not None
    return stage, report


def _node_of(stage: Stage) -> str:
    return stage.world.nodes[stage.job(JOB).placement.places[0].node].name


async def test_a_report_for_a_worker_not_placed_there_is_dropped() -> None:
    stage, report = await _running()
    other = "n2" if _node_of(stage) == "n1" else "n1"
    stage.inbox.take(stage._fleet, Report(node=other, workers=(report,)))
    assert stage.inbox.reports == {}


async def test_a_report_for_a_worker_that_does_not_exist_is_dropped() -> None:
    stage, report = await _running()
    odd = msgspec.structs.replace(report, worker=7)
    stage.inbox.take(stage._fleet, Report(node=_node_of(stage), workers=(odd,)))
    assert stage.inbox.reports == {}


async def test_an_older_state_never_replaces_a_newer_one() -> None:
    stage, report = await _running()
    node = _node_of(stage)
    late = msgspec.structs.replace(report, state=WorkerState.RUNNING)
    for one in (report, late):
        stage.inbox.take(stage._fleet, Report(node=node, workers=(one,)))
    assert stage.inbox.reports[JOB][0].state is WorkerState.ENDED


async def test_a_duplicate_report_is_recorded_once() -> None:
    stage, report = await _running()
    node = _node_of(stage)
    for _ in range(3):
        stage.inbox.take(stage._fleet, Report(node=node, workers=(report,)))
        await stage.rest()
    assert stage.story(JOB).count("worker.ended") == 1
    assert is_settled(stage._fleet, report)


async def test_an_attempt_that_the_log_is_past_is_ended_where_it_still_runs() -> None:
    stage, report = await _running()
    node = _node_of(stage)
    old = msgspec.structs.replace(report, attempt=0, state=WorkerState.RUNNING)
    stage.inbox.take(stage._fleet, Report(node=node, workers=(old,)))
    number = stage.world.node_named(node).number
    assert [key[2] for key in stage.inbox.stale[number]] == [0]
    ended = msgspec.structs.replace(old, state=WorkerState.ENDED)
    stage.inbox.take(stage._fleet, Report(node=node, workers=(ended,)))
    assert stage.inbox.stale[number] == {}


def _placed(number: int, cut_off: str, workers: int = 1) -> Job:
    job = job_name(number)
    placement = GangPlaced(
        job=job,
        attempt=1,
        placement=placement_id(job, 1),
        pool=PoolName("default"),
        quota=QuotaName("default"),
        charge="in_quota",
        places=(Place(NodeNumber(1)),) * workers,
        total={},
    )
    return Job(
        id=job,
        workspace=TEAM,
        spec=spec(workers=workers, when_cut_off=cut_off),
        version=3,
        submitted=number,
        submitted_at=START,
        stage="placed",
        attempt=1,
        placed_at=10,
        placed_epoch=1,
        placement=placement,
    )


def _after_a_loss(jobs: list[Job]) -> Picture:
    said = registration("n1")
    node = Node(
        number=NodeNumber(1),
        name=said.node,
        pool=said.pool,
        address=said.address,
        boot=said.boot,
        capacity=said.capacity,
        version=2,
        reachability="lost",
        lost_at=20,
    )
    return Picture(
        world=World(jobs={one.id: one for one in jobs}, nodes={node.number: node}),
        workers={one.id: Workers(attempt=1) for one in jobs},
        shaken={one.id: None for one in jobs},
    )


def test_jobs_that_wait_on_a_lost_node_keep_nobody_else_from_being_ended() -> None:
    jobs = [*(_placed(number, "run") for number in range(1000)), _placed(1000, "stop")]
    (unit,) = decide(_after_a_loss(jobs), Inbox(), START).units
    assert unit.appends[0].body.job == job_name(1000)


def test_a_cycle_says_no_more_than_one_append_can_take() -> None:
    jobs = [_placed(number, "stop", workers=1000) for number in range(20)]
    units = decide(_after_a_loss(jobs), Inbox(), START).units
    assert [len(unit.appends) for unit in units] == [1001, 1001]
