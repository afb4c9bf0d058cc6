"""One cycle of scheduling, in two steps: release what is over, then place in order.

A gang is placed whole or not at all, in one unit that guards what it was decided on: the quota tree
and its nodes. A unit uses nothing that another unit of the same cycle frees, so any of them may be
dropped.
"""

import datetime as dt
from collections.abc import Iterator
from typing import Literal, NamedTuple

from ebbtide.chassis.service import Decision
from ebbtide.contracts.envelope import Append, Unit
from ebbtide.contracts.events import GangPlaced, GangReleased, JobPlaced
from ebbtide.contracts.ids import NodeNumber, PoolName, QuotaName, placement_id
from ebbtide.contracts.outcomes import Outcome
from ebbtide.model import fit, job, node, resources
from ebbtide.model.fit import Free
from ebbtide.model.job import Job
from ebbtide.model.job_places import nodes_of
from ebbtide.model.world import pool_stream, quota_stream
from ebbtide.scheduler.model import Picture

HOLD = dt.timedelta(seconds=10)
"""How long places are held after a failure for recovery's verdict: it may keep them."""
BATCH = 256
"""Gangs placed per cycle, so that one append stays small."""
Waits = Literal["leaving", "backoff", "quota", "room", "nodes"]
_DONE = frozenset({Outcome.SUCCEEDED, Outcome.STOPPED, Outcome.PREEMPTED})


def decide(picture: Picture, now: dt.datetime) -> Decision:
    """Decide one cycle.

    1. Release placements whose attempt is over and that nobody may still keep.
    2. Place waiting jobs by priority, then submit order, until the first that must wait for room.
    """
    units = []
    wake_at: dt.datetime | None = None
    for name in picture.leaving:
        due = _release_due(picture.world.jobs[name])
        if due is None or due <= now:
            units.append(_release(picture, picture.world.jobs[name]))
        else:
            wake_at = min(wake_at or due, due)
    placed, due_next = _place_in_order(picture, now)
    if due_next is not None:
        wake_at = min(wake_at or due_next, due_next)
    return Decision(units=(*units, *placed), wake_at=wake_at)


def recovery_may_keep(one: Job) -> bool:
    """Say whether the next attempt may still be started on the places of the one that ended."""
    return one.stage == "ended" and one.ended is not None and one.ended.outcome not in _DONE


def _release_due(one: Job) -> dt.datetime | None:
    """Say when the placement goes back: None for at once."""
    if recovery_may_keep(one) and one.ended_at is not None:
        return one.ended_at + HOLD
    return None


def _release(picture: Picture, one: Job) -> Unit:
    placement = one.placement
    assert placement is not None  # noqa: S101  # `leaving` holds only jobs with a placement
    body = GangReleased(job=one.id, placement=placement.placement, pool=placement.pool)
    append = Append(
        stream=pool_stream(placement.pool),
        body=body,
        expected=picture.world.pools[placement.pool],
        workspace=one.workspace,
        actor="service:scheduler",
        trace=one.trace,
    )
    return Unit(appends=(append,), unmoved=(job.stream(one.id),) if recovery_may_keep(one) else ())


class Turn(NamedTuple):
    """What comes of a waiting job's turn: the unit that places it, or why it goes on waiting."""

    job: Job
    unit: Unit | None
    waits: Waits | None = None


def turns(picture: Picture, now: dt.datetime) -> Iterator[Turn]:
    """Go through the order, placing on a scratch copy, until a job must wait for room.

    That one blocks all behind it, so that small jobs do not starve it; one that must wait for its
    quota blocks those of its quota only. A job too large for the nodes that take work, even empty,
    is passed over: it waits for nodes, not for its turn. So is one in back-off, or one whose old
    placement is not released yet.
    """
    room = _Room(picture)
    held_up: set[QuotaName] = set()
    for _, _, name in picture.order:
        one = picture.world.jobs[name]
        if one.placement is not None or one.stop_requested:
            yield Turn(one, None, "leaving")
        elif one.not_before is not None and one.not_before > now:
            yield Turn(one, None, "backoff")
        elif one.spec.quota in held_up or room.over_quota(one):
            held_up.add(one.spec.quota)
            yield Turn(one, None, "quota")
        elif (unit := room.place(one)) is not None:
            yield Turn(one, unit)
        elif room.could_ever_hold(one):
            yield Turn(one, None, "room")
            return
        else:
            yield Turn(one, None, "nodes")


def _place_in_order(picture: Picture, now: dt.datetime) -> tuple[list[Unit], dt.datetime | None]:
    units: list[Unit] = []
    wake_at: dt.datetime | None = None
    if not picture.order:
        return units, wake_at
    for turn in turns(picture, now):
        if turn.waits == "backoff":
            not_before = turn.job.not_before
            wake_at = min(filter(None, (wake_at, not_before)), default=None)
        if turn.unit is not None:
            units.append(turn.unit)
        if len(units) == BATCH:
            return units, now
    return units, wake_at


class _Room:
    """What is left while a cycle places: a scratch copy of free capacity and use, by pool."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._used = {quota: dict(used) for quota, used in picture.used.items()}
        self._pools: dict[PoolName, dict[NodeNumber, Free]] = {}
        for one in picture.world.nodes.values():
            if one.takes_work:
                self._pools.setdefault(one.pool, {})[one.number] = picture.free[one.number]

    def over_quota(self, one: Job) -> dict[str, int]:
        """Give by how much the job would exceed what its quota still has."""
        used = self._used.get(one.spec.quota, {})
        ceiling = self._picture.world.quotas[one.spec.quota]
        return resources.within(used, fit.gang_total(one.spec), ceiling)

    def place(self, one: Job) -> Unit | None:
        """Place a job in the first pool that has room for all of it; None if none has."""
        for pool, free in sorted(self._pools.items()):
            places = fit.place_gang(one.spec, free)
            if places is not None:
                need = fit.gang_total(one.spec)
                used = self._used.get(one.spec.quota, {})
                self._used[one.spec.quota] = resources.total((used, need))
                gang = GangPlaced(
                    job=one.id,
                    attempt=one.attempt + 1,
                    placement=placement_id(one.id, one.attempt + 1),
                    pool=pool,
                    quota=one.spec.quota,
                    charge="in_quota",
                    places=places,
                    total=need,
                )
                return _placing(self._picture, one, gang)
        return None

    def could_ever_hold(self, one: Job) -> bool:
        """Say whether the ready nodes, empty, would hold the gang."""
        nodes = self._picture.world.nodes
        return fit.gang_fits_empty(
            one.spec, (nodes[number] for free in self._pools.values() for number in free)
        )


def _placing(picture: Picture, one: Job, gang: GangPlaced) -> Unit:
    """Say that a gang holds its places and that its attempt begins, in one unit."""
    newest = picture.world.checkpoints.get(one.id)
    placed = JobPlaced(
        job=one.id,
        attempt=gang.attempt,
        placement=gang.placement,
        charge=gang.charge,
        resume_step=newest.step if newest is not None else None,
        resume_folder=newest.folder if newest is not None else "",
    )
    return Unit(
        appends=tuple(_appends(picture, one, gang, placed)),
        unmoved=(quota_stream(picture.cell), *(node.stream(n) for n in nodes_of(gang))),
    )


def _appends(picture: Picture, one: Job, gang: GangPlaced, placed: JobPlaced) -> Iterator[Append]:
    version = picture.world.pools.get(gang.pool, 0)
    for stream, body, expected in (
        (pool_stream(gang.pool), gang, version),
        (job.stream(one.id), placed, one.version),
    ):
        yield Append(
            stream=stream,
            body=body,
            expected=expected,
            workspace=one.workspace,
            actor="service:scheduler",
            trace=one.trace,
        )
