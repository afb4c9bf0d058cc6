"""Where to go on in the events stream, given its newest message and the log. Pure.

The log is the truth. A stream that tells another story is made anew, and then every reader must
learn that what it heard may not have happened: the log's epoch must stand above the stream's
before.
"""

import msgspec

from ebbtide.contracts.envelope import Position, Recorded


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The newest message of the stream; epoch 0 and no event id when it is none of ours."""

    sequence: int
    epoch: int
    event_id: str


class GoOn(msgspec.Struct, frozen=True, kw_only=True):
    """The stream and the log agree up to ``after``."""

    after: int


class MakeAnew(msgspec.Struct, frozen=True, kw_only=True):
    """The stream holds nothing to rely on; the log's epoch must be above ``above_epoch`` first."""

    above_epoch: int


def decide(newest: Mark | None, row: Recorded | None, head: Position) -> GoOn | MakeAnew:
    """Compare the stream's newest message with the log's ``row`` at the same position.

    ``newest`` is None when the stream is missing or empty: it was lost, not falsified, so the epoch
    may stay. A message of an older epoch than the log's needs no rise either: the rise has
    happened, and only making the stream anew was left undone.
    """
    if newest is None:
        return MakeAnew(above_epoch=0)
    if row is not None and _same(newest, row):
        return GoOn(after=newest.sequence)
    return MakeAnew(above_epoch=newest.epoch if newest.epoch >= head.epoch else 0)


def _same(newest: Mark, row: Recorded) -> bool:
    return (newest.sequence, newest.epoch, newest.event_id) == (
        row.position,
        row.epoch,
        row.event_id,
    )
