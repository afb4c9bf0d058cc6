"""Which reported checkpoints are committed.

A checkpoint is believed only while its attempt is the newest that began: the unit guards the job's
stream, so no later attempt can have started at its own position. Steps only grow.
"""

from collections.abc import Iterable

from ebbtide.chassis.service import Decision
from ebbtide.checkpoint.model import Entry, Picture
from ebbtide.contracts.agents import CheckpointAck, CheckpointReport
from ebbtide.contracts.envelope import Append, Unit
from ebbtide.contracts.events import CheckpointCommitted
from ebbtide.contracts.ids import JobId
from ebbtide.model import job


def answer(picture: Picture, node: str, report: CheckpointReport) -> CheckpointAck | None:
    """Settle ``node``'s report: committed, or refused for good.

    None while it is still to be decided.
    """
    entry = picture.entries.get(report.job)
    if entry is None:
        return CheckpointAck(refused="checkpoint.job_unknown")
    if picture.numbers.get(node) not in entry.nodes:
        return CheckpointAck(refused="checkpoint.not_placed_there")
    newest = entry.newest
    if newest is not None and newest.step >= report.step:
        if newest.folder == report.folder:
            return CheckpointAck(position=picture.position)
        return CheckpointAck(refused="checkpoint.not_newer")
    if (entry.placed_epoch, entry.attempt) != (report.epoch, report.attempt):
        return CheckpointAck(refused="checkpoint.fenced")
    return None


def decide(picture: Picture, reports: Iterable[tuple[str, CheckpointReport]]) -> Decision:
    """Commit the newest believable checkpoint of each job; ``reports`` are (node, report)."""
    newest: dict[JobId, CheckpointReport] = {}
    for node, report in reports:
        known = newest.get(report.job)
        newer = known is None or report.step > known.step
        if newer and answer(picture, node, report) is None:
            newest[report.job] = report
    units = (_commit(picture.entries[report.job], report) for report in newest.values())
    return Decision(units=tuple(units))


def _commit(entry: Entry, report: CheckpointReport) -> Unit:
    body = CheckpointCommitted(
        job=report.job,
        attempt=report.attempt,
        round=report.round,
        step=report.step,
        folder=report.folder,
        digest=report.digest,
        bytes=report.bytes,
    )
    append = Append(
        stream=job.checkpoint_stream(report.job),
        body=body,
        expected=entry.version,
        workspace=entry.workspace,
        actor="service:checkpoint",
        trace=entry.trace,
    )
    return Unit(appends=(append,), unmoved=(job.stream(report.job),))
