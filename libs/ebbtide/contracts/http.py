"""Requests and answers of the HTTP interface, shared by api, SDK and CLI."""

import datetime as dt
from typing import Annotated, Literal

import msgspec

from ebbtide.contracts.events.node import Cordon, NodeChange
from ebbtide.contracts.ids import (
    JobId,
    NodeName,
    NodeNumber,
    PoolName,
    QuotaName,
    TokenId,
    Workspace,
)
from ebbtide.contracts.job_spec import WrittenJob

Phase = Literal[
    "submitted",
    "queued",
    "placed",
    "running",
    "stopping",
    "restarting",
    "succeeded",
    "failed",
    "stopped",
    "rejected",
]
FINAL_PHASES: frozenset[str] = frozenset({"succeeded", "failed", "stopped", "rejected"})

LOG_ATTEMPT = "Ebb-Log-Attempt"
LOG_WORKER = "Ebb-Log-Worker"
LOG_OFFSET = "Ebb-Log-Offset"
LOG_SIZE = "Ebb-Log-Size"
LOG_ENDED = "Ebb-Log-Ended"
"""Headers of a piece of a log.

Where it begins, how long the log is by now, whether it will grow.
"""


class Submit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ask for a job. The submitter makes ``id``.

    The same one twice is one job, with the same answer.
    """

    id: JobId
    job: dict[str, object]
    workspace: Workspace = Workspace("")


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """The job is in the log at ``position``."""

    id: JobId
    position: int


class StopJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ask for a job to end."""

    reason: str = ""


class StopAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a wish to stop came to.

    Asking twice is asking once, and a job that ended stays as it is.
    """

    id: JobId
    phase: Phase
    verdict: Literal["asked", "already_asked", "already_final"]
    position: int


class Uploaded(msgspec.Struct, frozen=True, kw_only=True):
    """The archive of ``digest`` is in the store; ``new`` says whether it came with this upload."""

    digest: str
    new: bool


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The door answers.

    ``bus`` says whether NATS is reachable, ``position`` how far the door has read.
    """

    status: Literal["ok"]
    cell: str
    bus: bool
    position: int


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as people see it, as of ``position``."""

    id: JobId
    name: str
    workspace: Workspace
    quota: QuotaName
    priority: int
    phase: Phase
    attempt: int
    restarts: int
    workers: int
    nodes: tuple[str, ...]
    charge: str
    why: str
    code: str
    newest_step: int | None
    submitted_at: dt.datetime
    started_at: dt.datetime | None
    ended_at: dt.datetime | None
    position: int


class JobDetail(JobView, frozen=True, kw_only=True):
    """A job with its whole specification.

    ``spec`` is the job as people write it, quantities such as ``"500m"`` and ``"1Gi"``: submitted
    again, it is the very same job. (The log's own events keep integers.)
    """

    spec: WrittenJob


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, newest first; pass ``next`` as ``cursor`` for the following page."""

    jobs: tuple[JobView, ...]
    next: str = ""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node as people see it.

    ``cordon`` says that it takes no new work and what becomes of the old, ``asked`` what was asked
    of it and is not answered yet, ``jobs`` how many jobs hold something on it.
    """

    number: NodeNumber
    name: NodeName
    pool: PoolName
    reachability: Literal["ready", "suspect", "lost"]
    capacity: dict[str, int]
    free: dict[str, int]
    cordon: Cordon | None = None
    cordon_why: str = ""
    asked: NodeChange | None = None
    jobs: int = 0


class NodeWork(msgspec.Struct, frozen=True, kw_only=True):
    """A job that holds something on a node, with ``workers`` of its workers."""

    id: JobId
    name: str
    workspace: Workspace
    phase: Phase
    attempt: int
    workers: int


class NodeDetail(NodeView, frozen=True, kw_only=True):
    """A node with the jobs on it, as far as they exist for the caller."""

    address: str
    boot: str
    work: tuple[NodeWork, ...]


class ChangeNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ask for a node to be used otherwise, or vouch that nothing runs there (``fence``)."""

    change: NodeChange
    reason: Annotated[str, msgspec.Meta(max_length=500)] = ""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The platform at a glance."""

    cell: str
    version: str
    epoch: int
    head: int
    position: int
    nodes: tuple[NodeView, ...]
    jobs: dict[str, int]


class CreateToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ask for a credential."""

    kind: Literal["admin", "member", "viewer", "job", "agent"]
    subject: str = ""


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A credential without its secret; ``secret`` is given once, when it is created."""

    id: TokenId
    kind: str
    subject: str
    created_at: dt.datetime
    revoked_at: dt.datetime | None = None
    secret: str = ""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error as ``application/problem+json`` (RFC 9457) with our stable ``code``."""

    status: int
    code: str
    title: str
    detail: str
    field: str = ""
    hint: str = ""
    type: str = "about:blank"
