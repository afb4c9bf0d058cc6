"""What agents said and the log does not hold yet: the newest report per worker, and registrations.

It is not remembered: agents keep what is unsettled and say it again when asked.
"""

import msgspec

from ebbtide.contracts.agents import Registration, Report, WorkerReport, WorkerState
from ebbtide.contracts.ids import JobId, NodeName, NodeNumber
from ebbtide.fleet.model import Picture
from ebbtide.model.job import Job

_RANK = {WorkerState.PREPARED: 0, WorkerState.RUNNING: 1, WorkerState.ENDED: 2}
AttemptKey = tuple[int, JobId, int]
"""Epoch, job, attempt: what fences compare."""


class Stale(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that a node still runs although the log is past it: it shall be ended there."""

    key: AttemptKey
    round: int


class Inbox(msgspec.Struct, kw_only=True):
    """``masters`` are rendezvous addresses by attempt; ``stale`` attempts to be ended, by node."""

    reports: dict[JobId, dict[int, WorkerReport]] = {}
    registrations: dict[NodeName, Registration] = {}
    masters: dict[AttemptKey, str] = {}
    stale: dict[NodeNumber, dict[AttemptKey, Stale]] = {}

    def take(self, picture: Picture, report: Report) -> None:
        """Take in a report.

        Keep what is news about the present attempts, note what runs out of turn.
        """
        node = picture.world.node_named(report.node)
        if node is None:
            return
        for one in report.workers:
            job = picture.world.jobs.get(one.job)
            if job is not None and is_present(job, one):
                if is_placed(job, one.worker, node.number):
                    self._meet(picture, job, one, node.address)
                    self._keep(job, one)
            elif is_past(picture, job, one):
                self._out_of_turn(picture, node.number, one)

    def _meet(self, picture: Picture, job: Job, one: WorkerReport, address: str) -> None:
        """Learn where the gang's rendezvous is; all its nodes wait to be told."""
        key = (one.epoch, one.job, one.attempt)
        if one.worker == 0 and one.port and key not in self.masters and job.placement is not None:
            self.masters[key] = f"{address}:{one.port}"
            picture.touched.update((place.node, None) for place in job.placement.places)

    def _keep(self, job: Job, one: WorkerReport) -> None:
        reports = self.reports.setdefault(job.id, {})
        known = reports.get(one.worker)
        if known is None or known.attempt != one.attempt or _RANK[known.state] <= _RANK[one.state]:
            reports[one.worker] = one

    def _out_of_turn(self, picture: Picture, node: NodeNumber, one: WorkerReport) -> None:
        """A node runs what the log is past, such as after a partition: have it ended."""
        key = (one.epoch, one.job, one.attempt)
        stale = self.stale.setdefault(node, {})
        if one.state is not WorkerState.ENDED and key not in stale:
            stale[key] = Stale(key=key, round=one.round)
            picture.touched[node] = None
        elif one.state is WorkerState.ENDED and stale.pop(key, None) is not None:
            picture.touched[node] = None

    def forget(self, picture: Picture) -> None:
        """Drop what the log has settled and what belongs to attempts that are over."""
        for job_id in list(self.reports):
            kept = {
                worker: one
                for worker, one in self.reports[job_id].items()
                if not is_settled(picture, one)
            }
            if kept:
                self.reports[job_id] = kept
            else:
                del self.reports[job_id]
        for key in list(self.masters):
            job = picture.world.jobs.get(key[1])
            if job is None or job.attempt != key[2] or not job.is_live:
                del self.masters[key]


def is_present(job: Job, one: WorkerReport) -> bool:
    """Say whether a report speaks of the job's live attempt."""
    return job.is_live and (one.epoch, one.attempt) == (job.placed_epoch, job.attempt)


def is_past(picture: Picture, job: Job | None, one: WorkerReport) -> bool:
    """Say whether a report not of the live attempt is of one that the log has left behind."""
    return job is None or one.epoch < picture.epoch or one.attempt <= job.attempt


def is_placed(job: Job, worker: int, node: NodeNumber) -> bool:
    """Say whether ``worker`` of the job has its place on ``node``: others are not believed."""
    placement = job.placement
    return (
        placement is not None
        and 0 <= worker < len(placement.places)
        and placement.places[worker].node == node
    )


def is_settled(picture: Picture, one: WorkerReport) -> bool:
    """Say whether the log holds what a report says, or can never hold it.

    What the log is past but runs on is not settled: it is said again until it was ended.
    """
    job = picture.world.jobs.get(one.job)
    if job is None or not is_present(job, one):
        return one.state is WorkerState.ENDED and is_past(picture, job, one)
    workers = picture.workers[one.job]
    match one.state:
        case WorkerState.PREPARED:
            return True
        case WorkerState.RUNNING:
            return one.worker in workers.started or one.worker in workers.ended
        case WorkerState.ENDED:
            return one.worker in workers.ended
