"""Verdicts: what follows from a failure, a stop, or the end of an attempt.

A job's budget (``max_restarts``) is used by failures of its own; lost nodes and cut-offs never use
it. Workers whose end nobody saw on nodes that stood are forgiven a few times in a row.
"""

import datetime as dt

from ebbtide.chassis.service import Decision
from ebbtide.contracts.envelope import Append, Unit
from ebbtide.contracts.events import (
    AttemptStopRequested,
    FirstFailure,
    JobFailed,
    JobRestarting,
    JobStopped,
    JobSucceeded,
)
from ebbtide.contracts.outcomes import (
    EndCause,
    Keep,
    KeepAll,
    KeepNone,
    Outcome,
    StopReason,
    exit_code,
    how_ended,
)
from ebbtide.model import job, node
from ebbtide.model.job import Job
from ebbtide.model.job_places import nodes_of
from ebbtide.recovery.model import Picture

BACKOFF_MAX_S = 60
BATCH = 256
LOSSES_FREE = 3
"""Attempts in a row without progress that may be lost on nodes that stood before that counts."""
FATAL_EXITS = {
    2: "bad usage",
    64: "bad usage",
    66: "no input",
    77: "no permission",
    78: "bad configuration",
    93: "the program asked not to be started again",
    126: "the command cannot be executed",
    127: "the command was not found",
}
"""Exit codes after which another attempt would end the same way (sysexits, shell, NVRx)."""

Body = JobSucceeded | JobFailed | JobStopped | JobRestarting | AttemptStopRequested


def decide(picture: Picture, _now: dt.datetime) -> Decision:
    """Say at most one thing about each job that is due."""
    units = []
    for name in list(picture.due)[:BATCH]:
        unit = _about(picture, picture.world.jobs[name])
        if unit is not None:
            units.append(unit)
    return Decision(units=tuple(units))


def _about(picture: Picture, one: Job) -> Unit | None:
    match one.stage:
        case "submitted" | "waiting":
            return _say(one, JobStopped(job=one.id)) if one.stop_requested else None
        case "placed":
            return _end_rest(picture, one)
        case "ended":
            return _verdict(picture, one)
        case "final":
            return None


def _end_rest(picture: Picture, one: Job) -> Unit | None:
    """End what is left of an attempt: somebody asked, a worker failed, or its node is drained."""
    if one.attempt_stop is not None:
        return None
    failed = picture.failed.get(one.id)
    reason: StopReason
    if one.stop_requested:
        reason = "stop_requested"
    elif failed is not None:
        reason = "worker_failed"
    elif picture.is_moving(one):
        reason = "drained"
    else:
        return None
    worker = failed.worker if failed is not None and reason == "worker_failed" else None
    body = AttemptStopRequested(job=one.id, attempt=one.attempt, reason=reason, worker=worker)
    return _say(one, body)


def _verdict(picture: Picture, one: Job) -> Unit:
    """Judge an attempt that has ended. Success counts even where a stop was on its way."""
    ended = one.ended
    assert ended is not None  # noqa: S101  # stage "ended" is made by AttemptEnded
    match ended.outcome:
        case Outcome.SUCCEEDED:
            return _say(one, JobSucceeded(job=one.id))
        case _ if one.stop_requested or ended.outcome is Outcome.STOPPED:
            return _say(one, JobStopped(job=one.id))
        case Outcome.LOST if _is_of_its_own_doing(picture, one):
            return _failed(picture, one, ended.first)
        case Outcome.PREEMPTED | Outcome.CUT_OFF | Outcome.LOST:
            why = "its node is drained" if one.attempt_stop == "drained" else ended.outcome.value
            return _again(picture, one, counted=False, why=why)
        case Outcome.TIME_LIMIT:
            return _say(
                one, JobFailed(job=one.id, code="job.time_limit", detail="time limit reached")
            )
        case Outcome.REFUSED | Outcome.FAILED:
            return _failed(picture, one, ended.first)


def _is_of_its_own_doing(picture: Picture, one: Job) -> bool:
    """Say whether a job keeps being lost on nodes that stood: nobody else would do that so often.

    Without this, a program that kills its sitter or its agent would be started again for ever.
    """
    if one.placement is None or one.losses < LOSSES_FREE:
        return False
    there = [picture.world.nodes[number] for number in nodes_of(one.placement)]
    return all(max(each.lost_at, each.fenced_at) <= one.placed_at for each in there)


def _failed(picture: Picture, one: Job, first: FirstFailure | None) -> Unit:
    """Start again while there is budget and hope."""
    why = describe(first)
    fatal = _fatal(first)
    if fatal:
        return _say(
            one, JobFailed(job=one.id, code="job.not_restartable", detail=f"{why}: {fatal}")
        )
    budget = one.spec.restart.max_restarts
    if one.restarts >= budget:
        detail = f"{why}; all {budget} restarts are used" if budget else why
        return _say(one, JobFailed(job=one.id, code="job.failed", detail=detail))
    return _again(picture, one, counted=True, why=why)


def _fatal(first: FirstFailure | None) -> str:
    """Say why there is no hope; a failed start without a status was a fault of its node."""
    told = first is not None and first.cause in (EndCause.EXITED, EndCause.START_FAILED)
    if first is None or not told or first.status is None:
        return ""
    return FATAL_EXITS.get(exit_code(first.status), "")


def describe(first: FirstFailure | None) -> str:
    """Say in words what happened to the worker that failed first."""
    if first is None:
        return "the attempt failed"
    how = how_ended(first.cause, first.status, first.detail)
    return f"worker {first.worker} on {first.node} {how}"


def _again(picture: Picture, one: Job, *, counted: bool, why: str) -> Unit:
    """Go on with a next attempt, from the newest committed checkpoint.

    The places are kept where all their nodes are ready; the unit guards those nodes and the
    checkpoints, so that "ready" and "newest" are still true at its own position: resumed from an
    older one, the next attempt would save steps that are refused as not newer.
    """
    newest = picture.world.checkpoints.get(one.id)
    step = newest.step if newest is not None else None
    held = one.placement
    preempted = one.ended is not None and one.ended.outcome is Outcome.PREEMPTED
    keep: Keep = KeepNone()
    guards = [job.checkpoint_stream(one.id)]
    if held is not None and not preempted and _all_ready(picture, one):
        keep = KeepAll()
        guards += [node.stream(number) for number in nodes_of(held)]
    progressed = step is not None and (one.best_step is None or step > one.best_step)
    body = JobRestarting(
        job=one.id,
        attempt=one.attempt + 1,
        keep=keep,
        counted=counted,
        backoff_ms=backoff_ms(one, progressed=progressed) if counted else 0,
        resume_step=step,
        resume_folder=newest.folder if newest is not None else "",
        why=why,
    )
    return _say(one, body, tuple(guards))


def _all_ready(picture: Picture, one: Job) -> bool:
    nodes = picture.world.nodes
    return one.placement is not None and all(
        nodes[number].takes_work for number in nodes_of(one.placement)
    )


def backoff_ms(one: Job, *, progressed: bool) -> int:
    """Give 1, 2, 4 ... 60 times the job's back-off; progress since the last restart resets it."""
    doublings = 0 if progressed else min(one.restarts, 10)
    seconds: int = one.spec.restart.backoff_s * (1 << doublings)
    return min(seconds, BACKOFF_MAX_S) * 1000


def _say(one: Job, body: Body, unmoved: tuple[str, ...] = ()) -> Unit:
    append = Append(
        stream=job.stream(one.id),
        body=body,
        expected=one.version,
        workspace=one.workspace,
        actor="service:recovery",
        trace=one.trace,
        closes=isinstance(body, JobSucceeded | JobFailed | JobStopped),
    )
    return Unit(appends=(append,), unmoved=unmoved)
