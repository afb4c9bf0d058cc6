"""The catalogue's picture: by job, the newest attempt that began and the newest committed step."""

import msgspec

from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.events import (
    CheckpointCommitted,
    GangPlaced,
    JobFailed,
    JobPlaced,
    JobRejected,
    JobRestarting,
    JobStopped,
    JobSubmitted,
    JobSucceeded,
    NodeJoined,
)
from ebbtide.contracts.ids import JobId, NodeNumber, Workspace
from ebbtide.model.job_places import nodes_of

ENDED_KEPT = 1_000
"""Jobs remembered after their end: what a worker saved last is committed after its exit."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """``placed_epoch``, ``attempt`` and ``nodes`` fence a report.

    ``version`` is of the checkpoint stream.
    """

    workspace: Workspace
    trace: str
    placed_epoch: int = 0
    attempt: int = 0
    nodes: tuple[NodeNumber, ...] = ()
    version: int = 0
    newest: CheckpointCommitted | None = None


class Picture(msgspec.Struct, kw_only=True):
    """Entries of live jobs, and of the newest thousand that ended, oldest first."""

    epoch: int = 0
    position: int = 0
    numbers: dict[str, NodeNumber] = {}
    entries: dict[JobId, Entry] = {}
    ended: dict[JobId, None] = {}

    def apply(self, recorded: Recorded) -> None:
        """Fold one event."""
        self.epoch, self.position = recorded.epoch, recorded.position
        event = recorded.body
        match event:
            case JobSubmitted():
                self.entries[event.job] = Entry(workspace=event.workspace, trace=recorded.trace)
            case GangPlaced():
                self._change(event.job, nodes=nodes_of(event))
            case NodeJoined():
                self.numbers[event.name] = event.node
            case JobPlaced() | JobRestarting():
                self._change(event.job, attempt=event.attempt, placed_epoch=recorded.epoch)
            case CheckpointCommitted():
                self._change(event.job, newest=event, version=recorded.version)
            case JobRejected():
                self.entries.pop(event.job, None)
            case JobSucceeded() | JobFailed() | JobStopped():
                self._end(event.job)
            case _:
                return

    def _change(self, job: JobId, **fields: object) -> None:
        if job in self.entries:
            self.entries[job] = msgspec.structs.replace(self.entries[job], **fields)

    def _end(self, job: JobId) -> None:
        self.ended[job] = None
        while len(self.ended) > ENDED_KEPT:
            oldest = next(iter(self.ended))
            del self.ended[oldest]
            self.entries.pop(oldest, None)
