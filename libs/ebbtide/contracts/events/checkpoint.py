"""Checkpoints of a job, on ``checkpoint-<job>``. The event is the only pointer to the newest."""

import msgspec

from ebbtide.contracts.ids import JobId


class CheckpointCommitted(msgspec.Struct, frozen=True, kw_only=True, tag="checkpoint.committed"):
    """The checkpoint of ``step`` is whole and durable in ``folder`` (checkpoint).

    ``folder`` is relative to the job's checkpoint folder; ``digest`` is that of its manifest.
    """

    job: JobId
    attempt: int
    round: int
    step: int
    folder: str
    digest: str
    bytes: int


CheckpointEvent = CheckpointCommitted
