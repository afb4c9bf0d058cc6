"""Verdicts on nodes, from their leases.

A node that missed two renewals is suspect, and so is one whose token was revoked, until its agent
has another: it cannot hear of work any more. One that was silent for a whole lease has its lease
taken by a guarded write, so that it cannot renew; when that write stands and the margin has passed
as well, nothing that must stop with the lease still runs there, and the node is lost.
"""

import datetime as dt
from typing import assert_never

import msgspec

from ebbtide.chassis.service import Decision
from ebbtide.contracts.envelope import Append, Unit
from ebbtide.contracts.events import (
    NodeCordoned,
    NodeEvent,
    NodeFenced,
    NodeLost,
    NodeReturned,
    NodeSuspected,
    NodeUncordoned,
)
from ebbtide.contracts.ids import NodeName
from ebbtide.model import node
from ebbtide.model.node import Node, Use
from ebbtide.node_health.model import Picture, Sight


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """``lease_s`` is what agents are given; ``margin_s`` covers their timers and ours.

    What an agent was really given stands in its lease: where that is longer, it counts.
    """

    lease_s: float
    margin_s: float

    @property
    def suspect_s(self) -> float:
        """Give the silence after which a node is suspect.

        Two renewals of a third each were missed.
        """
        return self.lease_s * 2 / 3 + self.margin_s / 2

    def at_least(self, lease_s: float) -> "Limits":
        """Give the limits of a node whose own lease may be longer."""
        return self if lease_s <= self.lease_s else msgspec.structs.replace(self, lease_s=lease_s)


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """What to append, and whose leases to take away at the revisions that were judged."""

    decision: Decision
    take: tuple[tuple[NodeName, int], ...]


def decide(
    picture: Picture, sight: Sight, limits: Limits, now_s: float, now: dt.datetime
) -> Verdicts:
    """Look at every node.

    Look again after a twelfth of a lease, when silence may have grown too long.
    """
    units: list[Unit] = []
    take: list[tuple[NodeName, int]] = []
    for one in picture.nodes.values():
        silent_s = sight.silent_s(one.name, now_s)
        own = limits.at_least(sight.lease_s(one.name))
        event = _verdict(one, sight, own, silent_s, one.name in picture.expelled)
        if event is not None:
            units.append(_say(one, event))
        if silent_s > own.lease_s and one.name not in sight.took and one.reachability != "lost":
            take.append((one.name, sight.revision(one.name)))
    again = now + dt.timedelta(seconds=limits.lease_s / 12)
    return Verdicts(decision=Decision(units=tuple(units), wake_at=again), take=tuple(take))


def _verdict(
    one: Node, sight: Sight, limits: Limits, silent_s: float, is_expelled: bool
) -> NodeEvent | None:
    # An agent that was expelled may renew for a moment yet, until its connection is ended.
    renews = not is_expelled and _renews(one, sight, limits, silent_s)
    is_back = renews and one.reachability != "ready"
    if one.fence_asked and not is_back:
        return NodeFenced(node=one.number, why=one.fence_why)
    if one.asked is not None:
        return _answer(one, one.asked)
    if is_expelled and one.reachability == "ready":
        return NodeSuspected(node=one.number, why="its token was revoked")
    why = f"its lease was not renewed for {silent_s:.1f} s"
    if silent_s <= limits.suspect_s:
        return NodeReturned(node=one.number) if is_back else None
    if one.reachability == "ready":
        return NodeSuspected(node=one.number, why=why)
    if (
        one.reachability == "suspect"
        and one.name in sight.took
        and silent_s > limits.lease_s + limits.margin_s
    ):
        return NodeLost(node=one.number, why=f"{why} and was taken away")
    return None


def _answer(one: Node, asked: Use) -> NodeEvent:
    """Do what a person asked; api refused what cannot be."""
    match asked:
        case "uncordon":
            return NodeUncordoned(node=one.number)
        case "cordon" | "drain" | "move":
            return NodeCordoned(node=one.number, mode=asked, why=one.asked_why)
        case _:
            assert_never(asked)


def _renews(one: Node, sight: Sight, limits: Limits, silent_s: float) -> bool:
    """Say whether a renewal was seen, lately and after this process began to see.

    An old value proves nothing.
    """
    seen = sight.leases.get(one.name)
    if seen is None or seen.lease.taken or silent_s > limits.suspect_s:
        return False
    return seen.renewed and seen.at_s > sight.since_s


def _say(one: Node, event: NodeEvent) -> Unit:
    append = Append(
        stream=node.stream(one.number),
        body=event,
        expected=one.version,
        actor="service:node_health",
    )
    return Unit(appends=(append,))
