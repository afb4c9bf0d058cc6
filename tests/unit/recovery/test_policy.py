"""Verdicts: which end starts the job again, which ends it, and how long it waits."""

from typing import Any

import msgspec
import pytest

from ebbtide.contracts.envelope import Append
from ebbtide.contracts.events import (
    AttemptEnded,
    FirstFailure,
    GangPlaced,
    JobRestarting,
    Place,
)
from ebbtide.contracts.ids import NodeName, NodeNumber, PoolName, QuotaName, placement_id
from ebbtide.contracts.outcomes import EndCause, KeepAll, KeepNone, Outcome
from ebbtide.model.job import Job, evolve, stream
from ebbtide.model.node import Node, Reachability
from ebbtide.model.world import World
from ebbtide.recovery.model import Picture
from ebbtide.recovery.policy import backoff_ms, decide, describe
from ebbtide.testing.builders import START, TEAM, job_name, recorded, spec

JOB = job_name(1)
N1 = NodeNumber(1)


def _first(cause: EndCause = EndCause.EXITED, status: int | None = 256) -> FirstFailure:
    return FirstFailure(worker=1, node="n1", cause=cause, status=status)


def _job(outcome: Outcome, first: FirstFailure | None = None, **fields: object) -> Job:
    placement = GangPlaced(
        job=JOB,
        attempt=1,
        placement=placement_id(JOB, 1),
        pool=PoolName("default"),
        quota=QuotaName("default"),
        charge="in_quota",
        places=(Place(N1),),
        total={"cpu": 1000},
    )
    job = Job(
        id=JOB,
        workspace=TEAM,
        spec=spec(),
        version=5,
        submitted=1,
        submitted_at=START,
        stage="ended",
        attempt=1,
        ended=AttemptEnded(job=JOB, attempt=1, outcome=outcome, first=first),
        placement=placement,
    )
    return msgspec.structs.replace(job, **fields)


def _node(reachability: Reachability) -> Node:
    return Node(
        number=N1,
        name=NodeName("n1"),
        pool=PoolName("default"),
        address="",
        boot="",
        capacity={},
        version=1,
        reachability=reachability,
    )


def _say(job: Job, reachability: Reachability = "ready") -> tuple[Any, tuple[str, ...]]:
    world = World(jobs={JOB: job}, nodes={N1: _node(reachability)})
    unit = decide(Picture(world=world, due={JOB: None}), START).units[0]
    return unit.appends[0].body, unit.unmoved


def _tag(body: Any) -> str:
    return str(body.__struct_config__.tag)


def test_success_ends_the_job_even_where_a_stop_was_on_its_way() -> None:
    assert _tag(_say(_job(Outcome.SUCCEEDED, stop_requested=True))[0]) == "job.succeeded"


def test_a_failure_after_a_stop_request_ends_the_job_as_stopped() -> None:
    assert _tag(_say(_job(Outcome.FAILED, _first(), stop_requested=True))[0]) == "job.stopped"


def test_a_failure_restarts_on_the_same_places_under_guard_of_nodes_and_checkpoints() -> None:
    body, guards = _say(_job(Outcome.FAILED, _first()))
    assert (body.keep, body.counted, body.attempt) == (KeepAll(), True, 2)
    assert set(guards) == {"node-1", f"checkpoint-{JOB}"}


def test_places_on_a_node_that_is_not_ready_are_not_kept() -> None:
    body, _ = _say(_job(Outcome.FAILED, _first()), "suspect")
    assert body.keep == KeepNone()


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.CUT_OFF, Outcome.PREEMPTED])
def test_what_is_not_the_jobs_fault_uses_no_budget(outcome: Outcome) -> None:
    body, _ = _say(_job(outcome, restarts=3))
    assert (_tag(body), body.counted, body.backoff_ms) == ("job.restarting", False, 0)


LOST = _first(EndCause.LOST, None)


def test_losses_in_a_row_on_nodes_that_stood_use_the_budget_at_last() -> None:
    said = [_say(_job(Outcome.LOST, LOST, losses=count))[0].counted for count in range(4)]
    assert said == [False, False, False, True]


def test_a_job_that_always_ends_unseen_fails_when_its_budget_is_used() -> None:
    body, _ = _say(_job(Outcome.LOST, LOST, losses=6, restarts=3))
    assert _tag(body) == "job.failed"
    assert body.detail == "worker 1 on n1 was lost; all 3 restarts are used"


def test_losses_with_their_node_never_use_the_budget() -> None:
    world = World(jobs={}, nodes={N1: msgspec.structs.replace(_node("ready"), lost_at=9)})
    job = _job(Outcome.LOST, LOST, losses=50, restarts=3, placed_at=8)
    world.jobs[JOB] = job
    body = decide(Picture(world=world, due={JOB: None}), START).units[0].appends[0].body
    assert (_tag(body), body.counted) == ("job.restarting", False)


def test_losses_are_counted_in_a_row_and_anew_after_progress() -> None:
    def after(job: Job, step: int | None) -> Job:
        body = JobRestarting(job=JOB, attempt=2, keep=KeepNone(), counted=False, resume_step=step)
        return evolve(job, recorded(Append(stream=stream(JOB), body=body)), body)

    lost = _job(Outcome.LOST, LOST, losses=2, best_step=10)
    assert after(lost, 10).losses == 3
    assert after(lost, 20).losses == 1
    assert after(_job(Outcome.FAILED, _first(), losses=2), None).losses == 0


def test_a_preempted_gang_never_keeps_its_places() -> None:
    assert _say(_job(Outcome.PREEMPTED))[0].keep == KeepNone()


def test_a_job_without_restarts_left_fails_and_says_why() -> None:
    body, _ = _say(_job(Outcome.FAILED, _first(), restarts=3))
    assert _tag(body) == "job.failed"
    assert body.detail == "worker 1 on n1 exited with code 1; all 3 restarts are used"


@pytest.mark.parametrize("code", [2, 126, 127])
def test_an_exit_that_would_repeat_is_not_tried_again(code: int) -> None:
    body, _ = _say(_job(Outcome.FAILED, _first(status=code << 8)))
    assert body.code == "job.not_restartable"


def test_a_command_that_cannot_start_is_not_tried_again() -> None:
    body, _ = _say(_job(Outcome.FAILED, _first(EndCause.START_FAILED, 127 << 8)))
    assert body.code == "job.not_restartable"


def test_a_start_that_failed_for_want_of_room_is_tried_again_within_the_budget() -> None:
    body, _ = _say(_job(Outcome.FAILED, _first(EndCause.START_FAILED, None)))
    assert isinstance(body, JobRestarting)
    assert body.counted


def test_the_first_failure_is_told_in_words() -> None:
    assert describe(_first(status=9)) == "worker 1 on n1 was killed by SIGKILL"


def test_back_off_doubles_up_to_a_minute_and_progress_resets_it() -> None:
    waits = [backoff_ms(_job(Outcome.FAILED, restarts=n), progressed=False) for n in range(8)]
    assert waits == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]
    assert backoff_ms(_job(Outcome.FAILED, restarts=5), progressed=True) == 1000
