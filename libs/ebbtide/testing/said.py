"""What services say of one job on one node, as appends for tests that play those services."""

from ebbtide.contracts.envelope import Append
from ebbtide.contracts.events import (
    AttemptEnded,
    AttemptRunning,
    CheckpointCommitted,
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
    NodeLost,
    Place,
    WorkerStarted,
)
from ebbtide.contracts.events.job import JobEvent
from ebbtide.contracts.ids import JobId, NodeName, NodeNumber, PoolName, QuotaName, placement_id
from ebbtide.contracts.outcomes import KeepNone, Outcome
from ebbtide.testing.builders import START, TEAM, spec

NODE, NAME = NodeNumber(1), NodeName("n1")
POOL, QUOTA = PoolName("default"), QuotaName("default")


def lifecycle(job: JobId, body: JobEvent, expected: int, *, closes: bool = False) -> Append:
    """Say something of the job's lifecycle, as version ``expected + 1`` of its stream."""
    return Append(stream=f"job-{job}", body=body, expected=expected, workspace=TEAM, closes=closes)


def submitted(job: JobId) -> Append:
    """Say that a job of one worker was submitted."""
    return lifecycle(job, JobSubmitted(job=job, workspace=TEAM, spec=spec()), 0)


def queued(job: JobId, expected: int = 1) -> Append:
    """Say that it is queued."""
    return lifecycle(job, JobQueued(job=job, quota=QUOTA), expected)


def rejected(job: JobId, expected: int = 1) -> Append:
    """Say that it can never run."""
    body = JobRejected(job=job, code="quota.ceiling", detail="too much", hint="ask for less")
    return lifecycle(job, body, expected, closes=True)


def held(job: JobId, attempt: int = 1, workers: int = 1) -> Append:
    """Say that the node's places are held for it."""
    body = GangPlaced(
        job=job,
        attempt=attempt,
        placement=placement_id(job, attempt),
        pool=POOL,
        quota=QUOTA,
        charge="in_quota",
        places=(Place(NODE),) * workers,
        total={"cpu": 1000 * workers, "memory": 1024 * workers},
    )
    return Append(stream=f"pool-{POOL}", body=body, workspace=TEAM)


def released(job: JobId, attempt: int = 1) -> Append:
    """Say that its places are free again."""
    body = GangReleased(job=job, placement=placement_id(job, attempt), pool=POOL)
    return Append(stream=f"pool-{POOL}", body=body, workspace=TEAM)


def placed(job: JobId, expected: int = 1, attempt: int = 1) -> Append:
    """Say that an attempt has its places."""
    placement = placement_id(job, attempt)
    body = JobPlaced(job=job, attempt=attempt, placement=placement, charge="in_quota")
    return lifecycle(job, body, expected)


def running(job: JobId, expected: int, attempt: int = 1) -> Append:
    """Say that all its workers have started."""
    return lifecycle(job, AttemptRunning(job=job, attempt=attempt), expected)


def started(job: JobId, worker: int = 0) -> Append:
    """Say that a worker's process runs."""
    body = WorkerStarted(
        job=job, attempt=1, round=1, worker=worker, node=NAME, pid=7, started_at=START
    )
    return Append(stream=f"workers-{job}", body=body, workspace=TEAM)


def saved(job: JobId, step: int) -> Append:
    """Say that a checkpoint is committed."""
    body = CheckpointCommitted(
        job=job, attempt=1, round=1, step=step, folder=f"step-{step}", digest="d", bytes=1
    )
    return Append(stream=f"checkpoint-{job}", body=body, workspace=TEAM)


def ended(
    job: JobId, expected: int, outcome: Outcome = Outcome.FAILED, log_bytes: tuple[int, ...] = ()
) -> Append:
    """Say that nothing of attempt 1 is left."""
    body = AttemptEnded(job=job, attempt=1, outcome=outcome, log_bytes=log_bytes)
    return lifecycle(job, body, expected)


def restarting(job: JobId, expected: int) -> Append:
    """Say that it goes on as attempt 2, to be placed anew."""
    body = JobRestarting(job=job, attempt=2, keep=KeepNone(), counted=True)
    return lifecycle(job, body, expected)


def succeeded(job: JobId, expected: int) -> Append:
    """Say that it did its work."""
    return lifecycle(job, JobSucceeded(job=job), expected, closes=True)


def failed(job: JobId, expected: int) -> Append:
    """Say that it is given up."""
    body = JobFailed(job=job, code="worker.failed", detail="exited with 1")
    return lifecycle(job, body, expected, closes=True)


def stopped(job: JobId, expected: int) -> Append:
    """Say that it was stopped."""
    return lifecycle(job, JobStopped(job=job), expected, closes=True)


def joined() -> Append:
    """Say that the node is there, with four CPUs."""
    body = NodeJoined(
        node=NODE,
        name=NAME,
        pool=POOL,
        address="127.0.0.1",
        boot="boot-1",
        capacity={"cpu": 4000, "memory": 16384},
    )
    return Append(stream=f"node-{NODE}", body=body)


def lost() -> Append:
    """Say that the node is lost."""
    return Append(stream=f"node-{NODE}", body=NodeLost(node=NODE, why="its lease ran out"))
