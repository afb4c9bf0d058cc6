"""A node as the log knows it."""

from typing import Literal, assert_never

import msgspec

from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.errors import InvariantBroken
from ebbtide.contracts.events import NodeFenced, NodeJoined, NodeLost, NodeReturned, NodeSuspected
from ebbtide.contracts.events.node import NodeEvent
from ebbtide.contracts.ids import NodeName, NodeNumber, PoolName

Reachability = Literal["ready", "suspect", "lost"]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with an agent.

    ``lost_at`` and ``fenced_at`` are positions: what was placed before ``lost_at`` and has
    ``when_cut_off = "stop"``, and all that was placed before ``fenced_at``, runs there no more.
    """

    number: NodeNumber
    name: NodeName
    pool: PoolName
    address: str
    boot: str
    capacity: dict[str, int]
    version: int
    reachability: Reachability = "ready"
    lost_at: int = 0
    fenced_at: int = 0


def stream(number: NodeNumber) -> str:
    """Name the stream of a node."""
    return f"node-{number}"


def evolve(node: Node | None, recorded: Recorded, event: NodeEvent) -> Node:
    """Fold one event of the node's stream."""
    if isinstance(event, NodeJoined):
        return _joined(node, recorded, event)
    if node is None:
        raise InvariantBroken(f"node {event.node} is spoken of before it joined")
    at = recorded.position
    match event:
        case NodeSuspected():
            return msgspec.structs.replace(node, version=recorded.version, reachability="suspect")
        case NodeLost():
            return msgspec.structs.replace(
                node, version=recorded.version, reachability="lost", lost_at=at
            )
        case NodeReturned():
            return msgspec.structs.replace(node, version=recorded.version, reachability="ready")
        case NodeFenced():
            return msgspec.structs.replace(node, version=recorded.version, fenced_at=at)
        case _:
            assert_never(event)


def _joined(node: Node | None, recorded: Recorded, event: NodeJoined) -> Node:
    """Take the agent's facts; a new boot id of a known node fences all that ran before."""
    rebooted = node is not None and node.boot != event.boot
    return Node(
        number=event.node,
        name=event.name,
        pool=event.pool,
        address=event.address,
        boot=event.boot,
        capacity=event.capacity,
        version=recorded.version,
        reachability=node.reachability if node is not None else "ready",
        lost_at=node.lost_at if node is not None else 0,
        fenced_at=recorded.position if rebooted else (node.fenced_at if node is not None else 0),
    )
