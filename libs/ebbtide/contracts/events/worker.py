"""What happens to single workers, on ``workers-<job>``.

1,024 of them must not move the job's version.
"""

import datetime as dt

import msgspec

from ebbtide.contracts.ids import JobId
from ebbtide.contracts.outcomes import EndCause


class WorkerStarted(msgspec.Struct, frozen=True, kw_only=True, tag="worker.started"):
    """A worker's process runs on ``node`` (fleet)."""

    job: JobId
    attempt: int
    round: int
    worker: int
    node: str
    pid: int
    started_at: dt.datetime


class WorkerEnded(msgspec.Struct, frozen=True, kw_only=True, tag="worker.ended"):
    """No process of the worker is left; ``status`` is the raw wait status (fleet).

    ``ordered`` says that the agent had been told to end it, so its end explains nothing. A worker
    that ended before its start was reported has no WorkerStarted; ``started_at`` says when it
    began.
    """

    job: JobId
    attempt: int
    round: int
    worker: int
    node: str
    cause: EndCause
    status: int | None = None
    ordered: bool = False
    detail: str = ""
    log_bytes: int = 0
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None


WorkerEvent = WorkerStarted | WorkerEnded
