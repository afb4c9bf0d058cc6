"""What happens to a job, on the stream ``job-<job>``: its lifecycle and nothing else."""

import msgspec

from ebbtide.contracts.ids import JobId, PlacementId, QuotaName, Workspace
from ebbtide.contracts.job_spec import JobSpec
from ebbtide.contracts.outcomes import Charge, EndCause, Keep, Outcome, StopReason


class JobSubmitted(msgspec.Struct, frozen=True, kw_only=True, tag="job.submitted"):
    """``workspace`` asks for ``spec`` to be run (api)."""

    job: JobId
    workspace: Workspace
    spec: JobSpec


class JobQueued(msgspec.Struct, frozen=True, kw_only=True, tag="job.queued"):
    """The job may use ``quota`` and could fit; it waits for its turn, once in its life (quota)."""

    job: JobId
    quota: QuotaName


class JobRejected(msgspec.Struct, frozen=True, kw_only=True, tag="job.rejected"):
    """The job can never run as it is, for the reason of the stable ``code`` (quota)."""

    job: JobId
    code: str
    detail: str
    hint: str = ""


class JobPlaced(msgspec.Struct, frozen=True, kw_only=True, tag="job.placed"):
    """``attempt`` has places.

    It starts from the checkpoint of ``resume_step``, if any (scheduler).
    """

    job: JobId
    attempt: int
    placement: PlacementId
    charge: Charge
    resume_step: int | None = None
    resume_folder: str = ""


class JobStopRequested(msgspec.Struct, frozen=True, kw_only=True, tag="job.stop_requested"):
    """A person wants the job to end (api)."""

    job: JobId
    reason: str = ""


class AttemptRunning(msgspec.Struct, frozen=True, kw_only=True, tag="attempt.running"):
    """Every worker of ``attempt`` has started (fleet)."""

    job: JobId
    attempt: int


class AttemptStopRequested(msgspec.Struct, frozen=True, kw_only=True, tag="attempt.stop_requested"):
    """What is left of ``attempt`` shall end; ``worker`` is the one that made it so (recovery)."""

    job: JobId
    attempt: int
    reason: StopReason
    worker: int | None = None


class FirstFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The worker whose end was the first that was neither success nor ordered."""

    worker: int
    node: str
    cause: EndCause
    status: int | None = None
    detail: str = ""


class AttemptEnded(msgspec.Struct, frozen=True, kw_only=True, tag="attempt.ended"):
    """No process of ``attempt`` is left; logs are complete to ``log_bytes`` by worker (fleet)."""

    job: JobId
    attempt: int
    outcome: Outcome
    first: FirstFailure | None = None
    following: tuple[int, ...] = ()
    log_bytes: tuple[int, ...] = ()


class JobRestarting(msgspec.Struct, frozen=True, kw_only=True, tag="job.restarting"):
    """The job goes on as ``attempt`` after ``backoff_ms``.

    ``counted`` uses up its budget (recovery).
    """

    job: JobId
    attempt: int
    keep: Keep
    counted: bool
    backoff_ms: int = 0
    resume_step: int | None = None
    resume_folder: str = ""
    why: str = ""


class JobSucceeded(msgspec.Struct, frozen=True, kw_only=True, tag="job.succeeded"):
    """Every worker did its work (recovery)."""

    job: JobId


class JobFailed(msgspec.Struct, frozen=True, kw_only=True, tag="job.failed"):
    """The job is given up, for the reason of the stable ``code`` (recovery)."""

    job: JobId
    code: str
    detail: str


class JobStopped(msgspec.Struct, frozen=True, kw_only=True, tag="job.stopped"):
    """The job ended because somebody stopped it, also where it never ran (recovery)."""

    job: JobId


JobEvent = (
    JobSubmitted
    | JobQueued
    | JobRejected
    | JobPlaced
    | JobStopRequested
    | AttemptRunning
    | AttemptStopRequested
    | AttemptEnded
    | JobRestarting
    | JobSucceeded
    | JobFailed
    | JobStopped
)
