"""What fleet and agents say to each other. All of it is state, not a queue: the newest counts.

Fleet writes a :class:`Desired` per node: every attempt to run there and every attempt to end. What
it does not name is left alone; a missing key means "no news". An agent reports the newest state of
each worker until a position of the log acknowledges it. Durations travel, never instants that
another clock would have to trust.
"""

import datetime as dt
from enum import Enum
from typing import Annotated

import msgspec

from ebbtide.contracts.ids import NAME, JobId, NodeName, NodeNumber, PoolName, Workspace
from ebbtide.contracts.job_spec import CutOff, JobType
from ebbtide.contracts.outcomes import EndCause, StopReason
from ebbtide.contracts.units import NAMES_MAX

# What an agent or a worker says goes into events. Bounds stand here, so that nothing that would
# not fit into one, or into a snapshot, comes past the service that reads it.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Text = Annotated[str, msgspec.Meta(max_length=1024)]
Folder = Annotated[str, msgspec.Meta(pattern=r"^\w[\w.+=-]{0,254}\Z")]
Capacity = Annotated[
    dict[Annotated[str, msgspec.Meta(max_length=127)], Count], msgspec.Meta(max_length=NAMES_MAX)
]


class DesiredWorker(msgspec.Struct, frozen=True, kw_only=True):
    """One worker to run: ``worker`` is its rank in the gang, ``index`` its place in its role."""

    worker: int
    role: str
    index: int
    command: tuple[str, ...]
    resources: dict[str, int]
    devices: int = 0
    share_milli: int = 0


class DesiredAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt's part on one node: to run, or with ``end`` set to be ended and reported ended.

    ``master`` is ``address:port`` of the rendezvous. It is empty until the agent of worker 0, which
    binds the port, has reported it; no worker of a gang of more than one starts before.
    ``resume_folder`` is the committed checkpoint to start from, relative to the job's checkpoint
    folder.
    """

    job: JobId
    name: str
    workspace: Workspace
    epoch: int
    attempt: int
    round: int
    type: JobType
    code: str
    env: dict[str, str]
    when_cut_off: CutOff
    grace_s: int
    world: int
    workers: tuple[DesiredWorker, ...]
    master: str = ""
    end: StopReason | None = None
    resume_step: int | None = None
    resume_folder: str = ""


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """All that a node shall do, as of ``position`` of ``epoch``; an older one is ignored.

    ``boot`` is the machine's life that it is meant for, empty for any: what was wanted of a former
    one is called lost as soon as the new one has registered, and placed elsewhere.
    """

    epoch: int
    position: int
    attempts: tuple[DesiredAttempt, ...] = ()
    boot: str = ""


class WorkerState(str, Enum):
    """States of a worker on its node, in the only order in which they may follow."""

    PREPARED = "prepared"
    RUNNING = "running"
    ENDED = "ended"


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The newest state of one worker.

    ``port`` is the rendezvous port that its agent holds for it.
    """

    job: JobId
    epoch: Count
    attempt: Count
    round: Count
    worker: Count
    state: WorkerState
    port: Count = 0
    pid: Count = 0
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    cause: EndCause | None = None
    status: Count | None = None
    ordered: bool = False
    detail: Text = ""
    log_bytes: Count = 0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """States of workers that no position has acknowledged yet.

    ``position`` of ``epoch`` is that of the newest desired state the agent has seen: a fleet that
    has not read so far must not judge the report.
    """

    node: NodeName
    workers: tuple[WorkerReport, ...]
    epoch: int = 0
    position: int = 0


class ReportAck(msgspec.Struct, frozen=True, kw_only=True):
    """The answer.

    What of the report (same order) is settled by the log up to ``position`` of ``epoch``.
    """

    epoch: int
    position: int
    settled: tuple[bool, ...]


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """An agent says what its machine is. ``capacity`` is a resource vector of integers."""

    node: NodeName
    pool: Annotated[PoolName, msgspec.Meta(pattern=rf"^{NAME.pattern}\Z")]
    address: Text
    boot: Text
    capacity: Capacity


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a registration, after NodeJoined is in the log."""

    number: NodeNumber
    epoch: int
    position: int


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Value of a node's lease key. ``taken`` means node_health took it away.

    ``lease_ms`` is how long the agent counts on it, also when it was taken.
    """

    node: NodeName
    boot: str
    holder: str
    count: Count
    lease_ms: Count
    taken: bool = False


class CheckpointReport(msgspec.Struct, frozen=True, kw_only=True):
    """A worker has written, synced and sealed the checkpoint of ``step`` in ``folder``."""

    job: JobId
    epoch: Count
    attempt: Count
    round: Count
    worker: Count
    step: Count
    folder: Folder
    digest: Text
    bytes: Count


class CheckpointAck(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: committed at ``position``, or refused for good with a code."""

    position: int = 0
    refused: str = ""


class LogRead(msgspec.Struct, frozen=True, kw_only=True):
    """Ask an agent for at most ``limit`` bytes of a worker's log from ``offset`` on."""

    job: JobId
    attempt: int
    worker: int
    offset: int
    limit: int
    wait_ms: int = 0


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a log from ``offset`` on; ``ended`` says that ``size`` will not grow."""

    offset: int
    size: int
    ended: bool
    data: bytes
    known: bool = True
