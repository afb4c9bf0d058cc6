"""A job's story in words: one sentence for each event. Pure."""

from collections.abc import Sequence
from typing import assert_never

import msgspec

from ebbtide.cli.printing import clean
from ebbtide.client import StoryEvent
from ebbtide.contracts.events import (
    AttemptEnded,
    AttemptRunning,
    AttemptStopRequested,
    CheckpointCommitted,
    Event,
    GangPlaced,
    GangReleased,
    JobFailed,
    JobPlaced,
    JobQueued,
    JobRejected,
    JobRestarting,
    JobStopped,
    JobStopRequested,
    JobSubmitted,
    JobSucceeded,
    NodeChangeRequested,
    NodeCordoned,
    NodeFenced,
    NodeJoined,
    NodeLost,
    NodeReturned,
    NodeSuspected,
    NodeUncordoned,
    QuotaChanged,
    TokenCreated,
    TokenRevoked,
    WorkerEnded,
    WorkerStarted,
)
from ebbtide.contracts.events.job import FirstFailure
from ebbtide.contracts.outcomes import KeepAll, KeepAllBut, Outcome, how_ended
from ebbtide.contracts.units import show_vector
from ebbtide.contracts.upcasts import UnknownEvent, decode_body

WORKERS_NAMED = 8


def words(event: StoryEvent) -> str:
    """Say in one sentence what an event says; one of a later release by its name and facts."""
    try:
        body = decode_body(event.type, msgspec.json.encode(event.body))
    except (UnknownEvent, msgspec.ValidationError):
        known = {name: value for name, value in event.body.items() if name != "type"}
        return clean(f"{event.type} {msgspec.json.encode(known).decode()}")
    return clean(_sentence(body))


def _sentence(body: Event) -> str:  # noqa: C901, PLR0912 - one arm for each event, closed by assert_never
    match body:
        case JobSubmitted():
            workers = sum(role.replicas for role in body.spec.roles.values())
            return f"submitted: {body.spec.name}, {_count(workers, 'worker')}, {body.workspace}"
        case JobQueued():
            return f"queued under quota {body.quota}"
        case JobRejected():
            return f"rejected: {body.code}: {body.detail}" + (f"; {body.hint}" if body.hint else "")
        case JobPlaced():
            return f"attempt {body.attempt} placed{_from(body.resume_step)}"
        case JobStopRequested():
            return "stop requested" + _because(body.reason)
        case AttemptRunning():
            return f"attempt {body.attempt} running: every worker has started"
        case AttemptStopRequested():
            return _stop(body)
        case AttemptEnded():
            return _ended(body)
        case JobRestarting():
            return _restarting(body)
        case JobSucceeded():
            return "succeeded"
        case JobFailed():
            return f"failed: {body.code}: {body.detail}"
        case JobStopped():
            return "stopped"
        case WorkerStarted():
            return f"worker {body.worker} started on {body.node}, pid {body.pid}"
        case WorkerEnded():
            ordered = ", as ordered" if body.ordered else ""
            how = how_ended(body.cause, body.status, body.detail)
            return f"worker {body.worker} on {body.node} {how}{ordered}"
        case GangPlaced():
            nodes = len({place.node for place in body.places})
            where = f"{_count(nodes, 'node')} of pool {body.pool}"
            return f"{show_vector(body.total)} held on {where} for attempt {body.attempt}"
        case GangReleased():
            return f"places in pool {body.pool} released"
        case CheckpointCommitted():
            return f"checkpoint of step {body.step} committed by attempt {body.attempt}"
        case NodeJoined():
            return f"node {body.name} joined pool {body.pool}: {show_vector(body.capacity)}"
        case NodeSuspected() | NodeLost() | NodeFenced():
            return f"node {body.node} {_NODE[type(body)]}: {body.why}"
        case NodeReturned():
            return f"node {body.node} is back"
        case NodeChangeRequested():
            return f"node {body.node}: {body.change} requested" + _because(body.reason)
        case NodeCordoned():
            return f"node {body.node} takes no new work ({body.mode})" + _because(body.why)
        case NodeUncordoned():
            return f"node {body.node} takes work again"
        case QuotaChanged():
            ceiling = show_vector(body.ceiling) if body.ceiling else "no limit"
            return f"quota {body.quota}: {ceiling}"
        case TokenCreated():
            subject = f" of {body.subject}" if body.subject else ""
            return f"token {body.token} created: {body.kind}{subject}"
        case TokenRevoked():
            return f"token {body.token} revoked"
        case _:
            assert_never(body)


_NODE = {NodeSuspected: "is suspect", NodeLost: "is lost", NodeFenced: "is fenced"}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _from(step: int | None) -> str:
    return "" if step is None else f", from the checkpoint of step {step}"


def _stop(body: AttemptStopRequested) -> str:
    why = body.reason.replace("_", " ")
    culprit = "" if body.worker is None else f" by worker {body.worker}"
    return f"the rest of attempt {body.attempt} is ended: {why}{culprit}"


def _ended(body: AttemptEnded) -> str:
    if body.outcome is Outcome.SUCCEEDED:
        return f"attempt {body.attempt} ended: every worker exited with code 0"
    said = f"attempt {body.attempt} ended: {body.outcome.value.replace('_', ' ')}"
    if body.first is not None:
        said += f"; {_first(body.first)}"
    if body.following:
        said += f"; following: {_workers(body.following)}"
    return said


def _first(first: FirstFailure) -> str:
    how = how_ended(first.cause, first.status, first.detail)
    return f"first: worker {first.worker} on {first.node} {how}"


def _workers(numbers: Sequence[int]) -> str:
    named = ", ".join(str(number) for number in numbers[:WORKERS_NAMED])
    more = len(numbers) - WORKERS_NAMED
    noun = "worker" if len(numbers) == 1 else "workers"
    return f"{noun} {named}" + (f" and {more} more" if more > 0 else "")


def _restarting(body: JobRestarting) -> str:
    match body.keep:
        case KeepAll():
            where = "on the same nodes"
        case KeepAllBut(nodes=nodes):
            where = f"without {_count(len(nodes), 'node')} of before"
        case _:
            where = "placed anew"
    counted = "" if body.counted else ", not counted"
    later = f" after {body.backoff_ms / 1000:g} s" if body.backoff_ms else ""
    why = f": {body.why}" if body.why else ""
    resume = _from(body.resume_step)
    return f"restarting as attempt {body.attempt} {where}{later}{resume}{counted}{why}"
