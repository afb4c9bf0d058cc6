"""Agents' reports: who is believed, and what their words add up to."""

import msgspec
import pytest

from ebbtide.contracts.agents import Report, WorkerReport, WorkerState
from ebbtide.contracts.events import WorkerEnded
from ebbtide.contracts.outcomes import EndCause, Outcome
from ebbtide.fleet.inbox import is_settled
from ebbtide.fleet.policy import outcome
from ebbtide.model.job import Job
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
    bad = [end for end in ends if not (end.cause is EndCause.EXITED and end.status == 0)]
    return outcome(job, bad, [end for end in bad if not end.ordered])


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
    stage.inbox.take(stage._fleet, Report(node=other, boot="", workers=(report,)))
    assert stage.inbox.reports == {}


async def test_a_report_for_a_worker_that_does_not_exist_is_dropped() -> None:
    stage, report = await _running()
    odd = msgspec.structs.replace(report, worker=7)
    stage.inbox.take(stage._fleet, Report(node=_node_of(stage), boot="", workers=(odd,)))
    assert stage.inbox.reports == {}


async def test_an_older_state_never_replaces_a_newer_one() -> None:
    stage, report = await _running()
    node = _node_of(stage)
    late = msgspec.structs.replace(report, state=WorkerState.RUNNING)
    for one in (report, late):
        stage.inbox.take(stage._fleet, Report(node=node, boot="", workers=(one,)))
    assert stage.inbox.reports[JOB][0].state is WorkerState.ENDED


async def test_a_duplicate_report_is_recorded_once() -> None:
    stage, report = await _running()
    node = _node_of(stage)
    for _ in range(3):
        stage.inbox.take(stage._fleet, Report(node=node, boot="", workers=(report,)))
        await stage.rest()
    assert stage.story(JOB).count("worker.ended") == 1
    assert is_settled(stage._fleet, report)


async def test_an_attempt_that_the_log_is_past_is_ended_where_it_still_runs() -> None:
    stage, report = await _running()
    node = _node_of(stage)
    old = msgspec.structs.replace(report, attempt=0, state=WorkerState.RUNNING)
    stage.inbox.take(stage._fleet, Report(node=node, boot="", workers=(old,)))
    number = stage.world.node_named(node).number
    assert [key[2] for key in stage.inbox.stale[number]] == [0]
    ended = msgspec.structs.replace(old, state=WorkerState.ENDED)
    stage.inbox.take(stage._fleet, Report(node=node, boot="", workers=(ended,)))
    assert stage.inbox.stale[number] == {}
