"""Every event, and the tag under which it is stored."""

from typing import get_args

import msgspec

from ebbtide.contracts.events.checkpoint import CheckpointCommitted, CheckpointEvent
from ebbtide.contracts.events.job import (
    AttemptEnded,
    AttemptRunning,
    AttemptStopRequested,
    FirstFailure,
    JobEvent,
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
from ebbtide.contracts.events.node import (
    Cordon,
    NodeChange,
    NodeChangeRequested,
    NodeCordoned,
    NodeEvent,
    NodeFenced,
    NodeJoined,
    NodeLost,
    NodeReturned,
    NodeSuspected,
    NodeUncordoned,
)
from ebbtide.contracts.events.pool import GangPlaced, GangReleased, Place, PoolEvent
from ebbtide.contracts.events.quota import QuotaChanged, QuotaEvent
from ebbtide.contracts.events.token import TokenCreated, TokenEvent, TokenKind, TokenRevoked
from ebbtide.contracts.events.worker import WorkerEnded, WorkerEvent, WorkerStarted
from ebbtide.contracts.ids import JobId

Event = JobEvent | WorkerEvent | PoolEvent | NodeEvent | QuotaEvent | CheckpointEvent | TokenEvent


def tag_of(event: type[msgspec.Struct] | msgspec.Struct) -> str:
    """Give the tag under which an event is stored: ``job.submitted``."""
    return str(event.__struct_config__.tag)


def job_of(event: msgspec.Struct) -> JobId | None:
    """Give the job that an event speaks of, if it speaks of one."""
    job: JobId | None = getattr(event, "job", None)
    return job


EVENT_TYPES: dict[str, type[msgspec.Struct]] = {tag_of(kind): kind for kind in get_args(Event)}

__all__ = [
    "EVENT_TYPES",
    "AttemptEnded",
    "AttemptRunning",
    "AttemptStopRequested",
    "CheckpointCommitted",
    "CheckpointEvent",
    "Cordon",
    "Event",
    "FirstFailure",
    "GangPlaced",
    "GangReleased",
    "JobEvent",
    "JobFailed",
    "JobPlaced",
    "JobQueued",
    "JobRejected",
    "JobRestarting",
    "JobStopRequested",
    "JobStopped",
    "JobSubmitted",
    "JobSucceeded",
    "NodeChange",
    "NodeChangeRequested",
    "NodeCordoned",
    "NodeEvent",
    "NodeFenced",
    "NodeJoined",
    "NodeLost",
    "NodeReturned",
    "NodeSuspected",
    "NodeUncordoned",
    "Place",
    "PoolEvent",
    "QuotaChanged",
    "QuotaEvent",
    "TokenCreated",
    "TokenEvent",
    "TokenKind",
    "TokenRevoked",
    "WorkerEnded",
    "WorkerEvent",
    "WorkerStarted",
    "job_of",
    "tag_of",
]
