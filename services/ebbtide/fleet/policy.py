"""What the log shall say of agents' reports.

A report is believed only from the node where its worker is placed, and only about the live attempt.
An attempt has ended when every worker's end is known: by its agent's word, or because its node was
called lost (for ``when_cut_off = "run"``: fenced).
"""

import datetime as dt
from collections.abc import Iterator, Sequence

from ebbtide.chassis.service import Decision
from ebbtide.contracts.agents import Registration, WorkerReport, WorkerState
from ebbtide.contracts.envelope import Append, Unit
from ebbtide.contracts.events import (
    AttemptEnded,
    AttemptRunning,
    Event,
    FirstFailure,
    NodeJoined,
    WorkerEnded,
    WorkerStarted,
)
from ebbtide.contracts.ids import NodeNumber
from ebbtide.contracts.outcomes import EndCause, Outcome, StopReason, is_well
from ebbtide.fleet.inbox import Inbox, is_present
from ebbtide.fleet.model import ROUND, Picture
from ebbtide.model import job, node
from ebbtide.model.job import Job

EVENTS = 2_000
"""Events after which a cycle says no more: many large gangs may end while the log is away, and one
append has 5 s. The next cycle goes on."""
_MAKE_WAY = frozenset[StopReason | None](("preempted", "drained"))
_BY_ORDER: dict[StopReason, Outcome] = {
    "stop_requested": Outcome.STOPPED,
    "preempted": Outcome.PREEMPTED,
    "drained": Outcome.PREEMPTED,
    "time_limit": Outcome.TIME_LIMIT,
}


def decide(picture: Picture, inbox: Inbox, now: dt.datetime) -> Decision:
    """Record new nodes, then per job what its workers did, whether it runs and whether it ended."""
    units = list(_joins(picture, inbox))
    count = 0
    for job_id in dict.fromkeys((*inbox.reports, *picture.shaken)):
        one = picture.world.jobs.get(job_id)
        said = _about(picture, inbox, one) if one is not None and one.is_live else None
        if said is not None:
            units.append(said)
            count += len(said.appends)
        if count >= EVENTS:
            break
    later = [
        one.not_before
        for one in (picture.world.jobs[name] for name in picture.delayed)
        if one.not_before is not None and one.not_before > now
    ]
    return Decision(units=tuple(units), wake_at=min(later, default=None))


def _joins(picture: Picture, inbox: Inbox) -> Iterator[Unit]:
    """Give new nodes their numbers, never used twice, and record changed facts of known ones."""
    fresh = max(picture.world.nodes, default=0)
    for name, said in inbox.registrations.items():
        known = picture.world.node_named(name)
        if known is not None and not has_changed(known, said):
            continue
        if known is None:
            fresh += 1
        number = known.number if known is not None else NodeNumber(fresh)
        body = NodeJoined(
            node=number,
            name=name,
            pool=said.pool,
            address=said.address,
            boot=said.boot,
            capacity=said.capacity,
        )
        append = Append(
            stream=node.stream(number),
            body=body,
            expected=known.version if known is not None else 0,
            actor=f"agent:{name}",
        )
        yield Unit(appends=(append,))


def has_changed(known: node.Node, said: Registration) -> bool:
    """Say whether an agent's facts differ from what the log holds. A pool is for life."""
    return (known.address, known.boot, known.capacity) != (said.address, said.boot, said.capacity)


def _about(picture: Picture, inbox: Inbox, one: Job) -> Unit | None:
    workers = picture.workers[one.id]
    started, ended = dict(workers.started), dict(workers.ended)
    said: list[Event] = []
    for report in inbox.reports.get(one.id, {}).values():
        if is_present(one, report):
            said.extend(_worker(picture, one, report, started, ended))
    if one.id in picture.shaken:
        said.extend(_lost(picture, one, ended))
    appends = [
        _append(one, job.workers_stream(one.id), event, picture.versions.get(one.id, 0))
        for event in said
    ]
    world = len(one.placement.places) if one.placement is not None else 0
    life: AttemptEnded | AttemptRunning | None = None
    if len(ended) == world:
        life = _ended(one, ended)
    elif len(started) == world and not one.running and not ended:
        life = AttemptRunning(job=one.id, attempt=one.attempt)
    if life is not None:
        appends.append(_append(one, job.stream(one.id), life, one.version))
    return Unit(appends=tuple(appends)) if appends else None


def _append(one: Job, stream: str, event: Event, expected: int) -> Append:
    return Append(
        stream=stream,
        body=event,
        expected=expected,
        workspace=one.workspace,
        actor="service:fleet",
        trace=one.trace,
    )


def _worker(
    picture: Picture,
    one: Job,
    report: WorkerReport,
    started: dict[int, None],
    ended: dict[int, WorkerEnded],
) -> Iterator[Event]:
    """Say what is new about one worker.

    One that ended before its start was known has only its end.
    """
    if report.state is WorkerState.PREPARED or report.worker in ended:
        return
    at = _node_name(picture, one, report.worker)
    if report.state is WorkerState.ENDED:
        ended[report.worker] = WorkerEnded(
            job=one.id,
            attempt=one.attempt,
            round=report.round,
            worker=report.worker,
            node=at,
            cause=report.cause or EndCause.LOST,
            status=report.status,
            ordered=report.ordered,
            detail=report.detail,
            log_bytes=report.log_bytes,
            started_at=report.started_at,
            ended_at=report.ended_at,
        )
        yield ended[report.worker]
    elif report.worker not in started and report.started_at is not None:
        started[report.worker] = None
        yield WorkerStarted(
            job=one.id,
            attempt=one.attempt,
            round=report.round,
            worker=report.worker,
            node=at,
            pid=report.pid,
            started_at=report.started_at,
        )


def _lost(picture: Picture, one: Job, ended: dict[int, WorkerEnded]) -> Iterator[Event]:
    """Give up workers on nodes that were lost or fenced after the attempt was placed."""
    assert one.placement is not None  # noqa: S101  # a live attempt has its places
    for worker, place in enumerate(one.placement.places):
        there = picture.world.nodes[place.node]
        gone_at = there.fenced_at
        if one.spec.when_cut_off == "stop":
            gone_at = max(gone_at, there.lost_at)
        if worker not in ended and gone_at > one.placed_at:
            ended[worker] = WorkerEnded(
                job=one.id,
                attempt=one.attempt,
                round=ROUND,
                worker=worker,
                node=there.name,
                cause=EndCause.LOST,
                detail="its node was called lost"
                if there.lost_at == gone_at
                else "its node was fenced",
            )
            yield ended[worker]


def _node_name(picture: Picture, one: Job, worker: int) -> str:
    assert one.placement is not None  # noqa: S101  # a live attempt has its places
    return picture.world.nodes[one.placement.places[worker].node].name


def _ended(one: Job, ended: dict[int, WorkerEnded]) -> AttemptEnded:
    """Sum up an attempt. ``ended`` is in the order of the log, so its first failure came first."""
    bad = [end for end in ended.values() if not is_well(end.cause, end.status)]
    unordered = [end for end in bad if not end.ordered]
    first = unordered[0] if unordered else None
    return AttemptEnded(
        job=one.id,
        attempt=one.attempt,
        outcome=outcome(one, tuple(ended.values())),
        first=_first(first),
        following=tuple(end.worker for end in bad if end is not first),
        log_bytes=tuple(ended[worker].log_bytes for worker in sorted(ended)),
    )


def _first(end: WorkerEnded | None) -> FirstFailure | None:
    if end is None:
        return None
    return FirstFailure(
        worker=end.worker, node=end.node, cause=end.cause, status=end.status, detail=end.detail
    )


def outcome(one: Job, ends: Sequence[WorkerEnded]) -> Outcome:
    """Name how an attempt ended: well if every worker did, even where a stop was on its way.

    But a worker that makes way, as a good one does by saving and leaving with 0, has not done its
    work.
    """
    bad = [end for end in ends if not is_well(end.cause, end.status)]
    if one.attempt_stop in _MAKE_WAY and any(end.ordered for end in ends):
        return Outcome.PREEMPTED
    if not bad:
        return Outcome.SUCCEEDED
    if one.attempt_stop in _BY_ORDER:
        return _BY_ORDER[one.attempt_stop]
    unordered = [end for end in bad if not end.ordered]
    if all(end.cause is EndCause.LEASE for end in unordered):
        return Outcome.CUT_OFF  # also where the node was shut down, which orders ends by itself
    if unordered and unordered[0].cause is EndCause.LOST:
        return Outcome.LOST
    return Outcome.FAILED
