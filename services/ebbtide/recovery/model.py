"""Recovery's picture.

The world, the first failure of each live attempt, and jobs that need a word.
"""

import msgspec

from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.events import NodeCordoned, WorkerEnded
from ebbtide.contracts.ids import JobId
from ebbtide.contracts.outcomes import is_well
from ebbtide.model.job import Job
from ebbtide.model.job_places import nodes_of
from ebbtide.model.world import World


class Picture(msgspec.Struct, kw_only=True):
    """``failed`` is the worker whose failure came first in a live attempt.

    ``due`` are jobs to look at.
    """

    world: World = msgspec.field(default_factory=World)
    failed: dict[JobId, WorkerEnded] = {}
    due: dict[JobId, None] = {}

    def apply(self, recorded: Recorded) -> None:
        """Fold one event."""
        event = recorded.body
        if isinstance(event, WorkerEnded):
            self._worker(event)
            return
        seen = self.world.apply(recorded)
        if isinstance(event, NodeCordoned) and event.mode == "move":
            for job in self.world.jobs.values():
                self._mark(job)
        if isinstance(seen, Job):
            if not seen.is_live:
                self.failed.pop(seen.id, None)
            self._mark(seen)

    def _worker(self, event: WorkerEnded) -> None:
        job = self.world.jobs.get(event.job)
        if job is None or not job.is_live or event.attempt != job.attempt:
            return
        if is_failure(event):
            self.failed.setdefault(job.id, event)
            self._mark(job)

    def _mark(self, job: Job) -> None:
        """Keep ``due`` to jobs about which there may be something to say."""
        asked = job.stop_requested or job.id in self.failed or self.is_moving(job)
        unheard = asked and job.stage != "final" and job.attempt_stop is None
        if unheard or job.stage == "ended":
            self.due[job.id] = None
        else:
            self.due.pop(job.id, None)

    def is_moving(self, job: Job) -> bool:
        """Say whether the job runs on a node whose work shall go on elsewhere."""
        if not job.is_live or job.placement is None:
            return False
        return any(self.world.nodes[n].cordon == "move" for n in nodes_of(job.placement))


def is_failure(event: WorkerEnded) -> bool:
    """Say whether a worker ended neither well nor by order."""
    return not event.ordered and not is_well(event.cause, event.status)
