"""The log is the history: each check is a fold over it that raises when a promise was broken.

Used unchanged by unit, scenario, simulation and end-to-end tests: hand every recorded event, in
order, to :meth:`Checks.apply`, then call :meth:`Checks.finish`.
"""

from collections.abc import Iterable

from ebbtide.contracts.authors import AUTHORS
from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.errors import EbbtideError
from ebbtide.contracts.events import (
    AttemptEnded,
    AttemptRunning,
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
    JobSubmitted,
    JobSucceeded,
    NodeJoined,
    WorkerEnded,
    WorkerStarted,
    job_of,
    tag_of,
)
from ebbtide.contracts.ids import JobId, NodeNumber
from ebbtide.contracts.units import MILLI
from ebbtide.model import fit, resources
from ebbtide.model.job_places import needs_of
from ebbtide.model.world import World

_LEGAL = {
    "submitted": {"job.queued", "job.rejected", "job.stop_requested", "job.stopped"},
    "waiting": {"job.placed", "job.stop_requested", "job.stopped"},
    "placed": {
        "attempt.running",
        "attempt.ended",
        "attempt.stop_requested",
        "job.stop_requested",
    },
    "ended": {
        "job.succeeded",
        "job.failed",
        "job.stopped",
        "job.restarting",
        "job.stop_requested",
    },
    "final": set(),
}
"""Which event of a job may follow in which stage of its life."""


class PromiseBroken(EbbtideError):
    """The log shows something that must never happen."""

    code = "promise"


class Checks:
    """All checks in one fold."""

    def __init__(self) -> None:
        self._world = World()
        self._position = 0
        self._versions: dict[str, int] = {}
        self._free: dict[NodeNumber, fit.Free] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._live: dict[JobId, set[int]] = {}
        self._ended: dict[tuple[JobId, int], set[int]] = {}
        self._steps: dict[JobId, int] = {}
        self._jobs: dict[JobId, str] = {}

    def apply(self, recorded: Recorded) -> None:
        """Fold one event.

        Raises:
            PromiseBroken: names the promise, the position and the thing.
        """
        self._order(recorded)
        self._author(recorded)
        self._transition(recorded)
        self._workers(recorded)
        self._held(recorded)
        self._steps_grow(recorded)
        self._world.apply(recorded)
        self._measure(recorded)

    def apply_all(self, events: Iterable[Recorded]) -> "Checks":
        """Fold many events; give the checks for chaining."""
        for recorded in events:
            self.apply(recorded)
        return self

    def finish(self) -> None:
        """Check what must hold at the end: every accepted job has ended and nothing is held."""
        waiting = sorted(job for job, stage in self._jobs.items() if stage != "final")
        if waiting:
            raise PromiseBroken(f"jobs that never ended: {waiting}")
        held = sorted(job.id for job in self._world.jobs.values() if job.placement is not None)
        if held:
            raise PromiseBroken(f"jobs that ended but hold their places: {held}")

    def _break(self, recorded: Recorded, promise: str) -> PromiseBroken:
        return PromiseBroken(f"{promise} (position {recorded.position}: {recorded.body})")

    def _order(self, recorded: Recorded) -> None:
        if recorded.position != self._position + 1:
            raise self._break(recorded, f"a gap in the log after {self._position}")
        expected = self._versions.get(recorded.stream, 0) + 1
        if recorded.version != expected:
            raise self._break(recorded, f"version {expected} of {recorded.stream} is missing")
        if recorded.read_to >= recorded.position:
            raise self._break(recorded, "decided on events that were not there")
        self._position = recorded.position
        self._versions[recorded.stream] = recorded.version

    def _author(self, recorded: Recorded) -> None:
        if AUTHORS[tag_of(recorded.body)] != recorded.service:
            raise self._break(recorded, f"{recorded.service} is not the author")

    def _transition(self, recorded: Recorded) -> None:
        if not recorded.stream.startswith("job-"):
            return
        event = recorded.body
        job_id: JobId = event.job  # type: ignore[union-attr]  # a job's stream holds job events
        if isinstance(event, JobSubmitted):
            if job_id in self._jobs:
                raise self._break(recorded, "submitted twice")
            self._jobs[job_id] = "submitted"
            return
        job = self._world.jobs.get(job_id)
        stage = job.stage if job is not None else self._jobs.get(job_id, "unknown")
        if tag_of(event) not in _LEGAL.get(stage, set()):
            raise self._break(recorded, f"{tag_of(event)} cannot follow in stage {stage}")
        self._attempts(recorded)
        self._jobs[job_id] = _stage_after(event, stage)

    def _attempts(self, recorded: Recorded) -> None:
        """Attempts are numbered without gaps, and words about one name the present one."""
        event = recorded.body
        name = job_of(event)
        job = self._world.jobs.get(name) if name is not None else None
        if job is None:
            return
        if isinstance(event, JobPlaced | JobRestarting):
            expected = job.attempt + 1
            if event.attempt != expected:
                raise self._break(recorded, f"attempt {expected} was due")
            if isinstance(event, JobPlaced) and job.placement is None:
                raise self._break(recorded, "placed without places")
        elif isinstance(event, AttemptRunning | AttemptEnded) and event.attempt != job.attempt:
            raise self._break(recorded, f"attempt {job.attempt} is the live one")

    def _workers(self, recorded: Recorded) -> None:
        """One live attempt, no rank twice, and an attempt ends only when all its workers have."""
        event = recorded.body
        if isinstance(event, WorkerStarted | WorkerEnded):
            job = self._world.jobs.get(event.job)
            if job is None or job.attempt != event.attempt or job.stage != "placed":
                raise self._break(recorded, "a worker of no live attempt")
            ended = self._ended.setdefault((event.job, event.attempt), set())
            live = self._live.setdefault(event.job, set())
            if event.worker in ended or (isinstance(event, WorkerStarted) and event.worker in live):
                raise self._break(recorded, "a worker started or ended twice")
            if isinstance(event, WorkerStarted):
                live.add(event.worker)
            else:
                live.discard(event.worker)
                ended.add(event.worker)
        elif isinstance(event, AttemptEnded):
            job = self._world.jobs[event.job]
            world = len(needs_of(job.spec))
            if len(self._ended.get((event.job, event.attempt), ())) != world:
                raise self._break(recorded, "an attempt ended before its workers")
            self._live.pop(event.job, None)

    def _held(self, recorded: Recorded) -> None:
        """No device, node or quota is over-committed; what is released was held."""
        event = recorded.body
        if isinstance(event, GangPlaced):
            self._place(recorded, event)
        elif isinstance(event, GangReleased):
            self._release(recorded, event)

    def _place(self, recorded: Recorded, event: GangPlaced) -> None:
        job = self._world.jobs[event.job]
        if job.placement is not None:
            raise self._break(recorded, "a job is placed twice at once")
        needs = needs_of(job.spec)
        if len(needs) != len(event.places):
            raise self._break(recorded, "a gang is placed in part")
        for place, need in zip(event.places, needs, strict=True):
            free = self._free[place.node]
            fit.hold(free, place, need)
            if min(free.left.values()) < 0 or min(free.devices, default=0) < 0:
                raise self._break(recorded, f"node {place.node} is over-committed: {free}")
            whole = sum(need.get(name, 0) for name in need if name.startswith("gpu"))
            held = place.devices.bit_count() * (place.share_milli or MILLI)
            if held != whole:
                raise self._break(recorded, "devices held differ from devices asked for")
            if not self._world.nodes[place.node].takes_work:
                raise self._break(recorded, f"placed on node {place.node}, which takes no work")
        used = self._used.setdefault(event.quota, {})
        ceiling = self._world.quotas.get(event.quota, {})
        if resources.within(used, event.total, ceiling):
            raise self._break(recorded, f"quota {event.quota} is over its ceiling")
        self._used[event.quota] = resources.total((used, event.total))

    def _release(self, recorded: Recorded, event: GangReleased) -> None:
        job = self._world.jobs.get(event.job)
        if job is None or job.placement is None or job.placement.placement != event.placement:
            raise self._break(recorded, "released what is not held")
        if job.is_live:
            raise self._break(recorded, "released under a live attempt")
        for place, need in zip(job.placement.places, needs_of(job.spec), strict=True):
            fit.give(self._free[place.node], place, need)
        used = self._used[job.placement.quota]
        for name, amount in job.placement.total.items():
            used[name] -= amount

    def _steps_grow(self, recorded: Recorded) -> None:
        event = recorded.body
        if isinstance(event, CheckpointCommitted):
            if event.step <= self._steps.get(event.job, -1):
                raise self._break(recorded, "a committed step does not grow")
            self._steps[event.job] = event.step
            job = self._world.jobs.get(event.job)
            if job is not None and event.attempt != job.attempt:
                raise self._break(recorded, f"committed although attempt {job.attempt} has begun")

    def _measure(self, recorded: Recorded) -> None:
        """Compute what is free on a node whose facts are new, less what is placed there."""
        event = recorded.body
        if not isinstance(event, NodeJoined):
            return
        free = self._free[event.node] = fit.empty(self._world.nodes[event.node])
        for job in self._world.jobs.values():
            if job.placement is None:
                continue
            for place, need in zip(job.placement.places, needs_of(job.spec), strict=True):
                if place.node == event.node:
                    fit.hold(free, place, need)


def _stage_after(event: Event, stage: str) -> str:
    if isinstance(event, JobRejected | JobSucceeded | JobFailed | JobStopped):
        return "final"
    if isinstance(event, JobQueued):
        return "waiting"
    return stage


def check_log(events: Iterable[Recorded], *, ended: bool = True) -> None:
    """Check a whole log; with ``ended`` also that every accepted job has come to its end."""
    checks = Checks().apply_all(events)
    if ended:
        checks.finish()
