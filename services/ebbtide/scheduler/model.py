"""The scheduler's picture: the world, what is free on each node, and who waits in which order."""

from bisect import bisect_left, insort

import msgspec

from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.events import GangPlaced, job_of
from ebbtide.contracts.ids import JobId, NodeNumber, QuotaName
from ebbtide.model import fit
from ebbtide.model.fit import Free
from ebbtide.model.job import Job
from ebbtide.model.job_places import needs_of
from ebbtide.model.node import Node
from ebbtide.model.world import World

Turn = tuple[int, int, JobId]


class Picture(msgspec.Struct, kw_only=True):
    """``order`` holds (minus priority, submit position, job) of every waiting job, sorted.

    ``free`` and ``used`` are the world's placements summed up, kept as they change; ``leaving`` are
    jobs whose placement may have to be released.
    """

    cell: str = "main"
    world: World = msgspec.field(default_factory=World)
    free: dict[NodeNumber, Free] = {}
    used: dict[QuotaName, dict[str, int]] = {}
    order: list[Turn] = []
    leaving: dict[JobId, None] = {}

    def apply(self, recorded: Recorded) -> None:
        """Fold one event."""
        before = self._held(job_of(recorded.body))
        seen = self.world.apply(recorded)
        if isinstance(seen, Job):
            self._queue(seen)
            if before is not seen.placement:
                self._move(before, seen)
        elif isinstance(seen, Node):
            self._measure(seen)

    def _held(self, name: JobId | None) -> GangPlaced | None:
        job = self.world.jobs.get(name) if name is not None else None
        return job.placement if job is not None else None

    def _queue(self, job: Job) -> None:
        turn = (-job.spec.priority, job.submitted, job.id)
        index = bisect_left(self.order, turn)
        queued = index < len(self.order) and self.order[index] == turn
        if job.stage == "waiting" and not queued:
            insort(self.order, turn)
        elif job.stage != "waiting" and queued:
            del self.order[index]
        if job.placement is not None and job.stage != "placed":
            self.leaving[job.id] = None
        else:
            self.leaving.pop(job.id, None)

    def _move(self, before: GangPlaced | None, job: Job) -> None:
        """Take or give back what a placement holds."""
        if before is not None:
            self._change(before, job, -1)
        if job.placement is not None:
            self._change(job.placement, job, +1)

    def _change(self, placement: GangPlaced, job: Job, sign: int) -> None:
        used = self.used.setdefault(placement.quota, {})
        for name, amount in placement.total.items():
            used[name] = used.get(name, 0) + sign * amount
        for place, need in zip(placement.places, needs_of(job.spec), strict=True):
            free = self.free.get(place.node)
            if free is None:
                continue
            if sign < 0:
                fit.give(free, place, need)
            else:
                fit.hold(free, place, need)

    def _measure(self, node: Node) -> None:
        """Compute a node's free capacity anew.

        Its facts may have changed under what is placed there.
        """
        free = fit.empty(node)
        for job in self.world.jobs.values():
            if job.placement is None:
                continue
            for place, need in zip(job.placement.places, needs_of(job.spec), strict=True):
                if place.node == node.number:
                    fit.hold(free, place, need)
        self.free[node.number] = free
