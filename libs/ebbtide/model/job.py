"""A job's life as a fold over its own stream and the placements made for it.

    submitted -> queued -> (waiting -> placed -> ended)* -> final

``waiting`` means that attempt ``attempt + 1`` shall be placed by the scheduler; ``placed`` that
attempt ``attempt`` has its places; ``ended`` that no process of it is left and recovery owes a
verdict.
"""

import datetime as dt
from typing import Literal, assert_never

import msgspec

from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.errors import InvariantBroken
from ebbtide.contracts.events import (
    AttemptEnded,
    AttemptRunning,
    AttemptStopRequested,
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
)
from ebbtide.contracts.events.job import JobEvent
from ebbtide.contracts.ids import JobId, Workspace
from ebbtide.contracts.job_spec import JobSpec
from ebbtide.contracts.outcomes import KeepAll, Outcome, StopReason

Stage = Literal["submitted", "waiting", "placed", "ended", "final"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as of ``version`` of its stream.

    ``placement`` is what the job holds now, whatever its stage; ``placed_at`` (in ``placed_epoch``)
    is the position at which the present attempt got its places; ``not_before`` is when the present
    attempt may start (back-off). ``losses`` counts the last attempts in a row whose end nobody saw
    and that made no progress.
    """

    id: JobId
    workspace: Workspace
    spec: JobSpec
    version: int
    submitted: int
    submitted_at: dt.datetime
    trace: str = ""
    stage: Stage = "submitted"
    attempt: int = 0
    placed_at: int = 0
    placed_epoch: int = 0
    not_before: dt.datetime | None = None
    running: bool = False
    stop_requested: bool = False
    attempt_stop: StopReason | None = None
    ended: AttemptEnded | None = None
    ended_at: dt.datetime | None = None
    restarts: int = 0
    losses: int = 0
    resume_step: int | None = None
    resume_folder: str = ""
    best_step: int | None = None
    placement: GangPlaced | None = None

    @property
    def is_live(self) -> bool:
        """Say whether the present attempt has places and has not ended."""
        return self.stage == "placed"


def stream(job: JobId) -> str:
    """Name the stream of a job's lifecycle."""
    return f"job-{job}"


def workers_stream(job: JobId) -> str:
    """Name the stream of a job's workers."""
    return f"workers-{job}"


def checkpoint_stream(job: JobId) -> str:
    """Name the stream of a job's checkpoints."""
    return f"checkpoint-{job}"


def submitted(recorded: Recorded, event: JobSubmitted) -> Job:
    """Begin a job."""
    return Job(
        id=event.job,
        workspace=event.workspace,
        spec=event.spec,
        version=recorded.version,
        submitted=recorded.position,
        submitted_at=recorded.at,
        trace=recorded.trace,
    )


def evolve(job: Job, recorded: Recorded, event: JobEvent) -> Job:
    """Fold one event of the job's stream after the first."""
    version = recorded.version
    match event:
        case JobSubmitted():
            raise InvariantBroken(f"{job.id} is submitted twice")
        case JobQueued():
            return msgspec.structs.replace(job, version=version, stage="waiting")
        case JobPlaced():
            return _begin(job, recorded, event)
        case JobStopRequested():
            return msgspec.structs.replace(job, version=version, stop_requested=True)
        case AttemptRunning():
            return msgspec.structs.replace(job, version=version, running=True)
        case AttemptStopRequested():
            return msgspec.structs.replace(job, version=version, attempt_stop=event.reason)
        case AttemptEnded():
            return msgspec.structs.replace(
                job,
                version=version,
                stage="ended",
                running=False,
                ended=event,
                ended_at=recorded.at,
            )
        case JobRestarting():
            return _restart(job, recorded, event)
        case JobRejected() | JobSucceeded() | JobFailed() | JobStopped():
            return msgspec.structs.replace(job, version=version, stage="final")
        case _:
            assert_never(event)


def _begin(job: Job, recorded: Recorded, event: JobPlaced | JobRestarting) -> Job:
    return msgspec.structs.replace(
        job,
        version=recorded.version,
        stage="placed",
        attempt=event.attempt,
        placed_at=recorded.position,
        placed_epoch=recorded.epoch,
        running=False,
        attempt_stop=None,
        ended=None,
        ended_at=None,
        resume_step=event.resume_step,
        resume_folder=event.resume_folder,
    )


def _restart(job: Job, recorded: Recorded, event: JobRestarting) -> Job:
    """Go on with a next attempt.

    On the held placement where it is kept, else back to the scheduler.

    Whether a placement is still held is settled by the log's order, for every reader alike: a
    release that came first makes ``keep: all`` mean "place anew".
    """
    counted = msgspec.structs.replace(
        job,
        restarts=job.restarts + event.counted,
        losses=_losses(job, event),
        not_before=recorded.at + dt.timedelta(milliseconds=event.backoff_ms),
        best_step=event.resume_step,
    )
    if isinstance(event.keep, KeepAll) and job.placement is not None:
        return _begin(counted, recorded, event)
    return msgspec.structs.replace(
        counted,
        version=recorded.version,
        stage="waiting",
        running=False,
        attempt_stop=None,
    )


def _losses(job: Job, event: JobRestarting) -> int:
    if job.ended is None or job.ended.outcome is not Outcome.LOST:
        return 0
    progressed = event.resume_step != job.best_step
    return 1 if progressed else job.losses + 1


def hold(job: Job, event: GangPlaced | GangReleased) -> Job:
    """Fold a pool event that speaks of the job: what it holds."""
    match event:
        case GangPlaced():
            return msgspec.structs.replace(job, placement=event)
        case GangReleased(placement=placement):
            if job.placement is None or job.placement.placement != placement:
                raise InvariantBroken(f"{placement} is released but not held")
            return msgspec.structs.replace(job, placement=None)
        case _:
            assert_never(event)
