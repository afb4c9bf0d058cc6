"""A node as the log knows it."""

from typing import Literal, assert_never

import msgspec

from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.errors import InvariantBroken
from ebbtide.contracts.events import (
    Cordon,
    NodeChange,
    NodeChangeRequested,
    NodeCordoned,
    NodeFenced,
    NodeJoined,
    NodeLost,
    NodeReturned,
    NodeSuspected,
    NodeUncordoned,
)
from ebbtide.contracts.events.node import NodeEvent
from ebbtide.contracts.ids import NodeName, NodeNumber, PoolName

Reachability = Literal["ready", "suspect", "lost"]
Use = Cordon | Literal["uncordon"]
_CHANGE = msgspec.structs.replace


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with an agent.

    ``lost_at`` and ``fenced_at`` are positions: what was placed before ``lost_at`` and has
    ``when_cut_off = "stop"``, and all that was placed before ``fenced_at``, runs there no more.
    ``asked`` and ``fence_asked`` are wishes of people that node_health has not answered yet. Of
    the first kind the newest counts; a fence is no other use of a node, so it takes none back.
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
    cordon: Cordon | None = None
    cordon_why: str = ""
    asked: Use | None = None
    asked_why: str = ""
    fence_asked: bool = False
    fence_why: str = ""

    @property
    def wish(self) -> NodeChange | None:
        """Give what somebody asked of the node and still waits for."""
        return "fence" if self.fence_asked else self.asked

    @property
    def takes_work(self) -> bool:
        """Say whether anything may be placed here."""
        return self.reachability == "ready" and self.cordon is None


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
    node = _CHANGE(node, version=recorded.version)
    match event:
        case NodeSuspected():
            return _CHANGE(node, reachability="suspect")
        case NodeLost():
            return _CHANGE(node, reachability="lost", lost_at=at)
        case NodeReturned():
            # A node that answers can say itself what runs there: a fence asked for is void.
            return _CHANGE(node, reachability="ready", fence_asked=False)
        case NodeFenced():
            return _CHANGE(node, fenced_at=at, fence_asked=False)
        case NodeChangeRequested():
            return _wished(node, event)
        case NodeCordoned():
            return _CHANGE(node, cordon=event.mode, cordon_why=event.why, asked=None)
        case NodeUncordoned():
            return _CHANGE(node, cordon=None, cordon_why="", asked=None)
        case _:
            assert_never(event)


def _wished(node: Node, event: NodeChangeRequested) -> Node:
    if event.change == "fence":
        return _CHANGE(node, fence_asked=True, fence_why=event.reason)
    return _CHANGE(node, asked=event.change, asked_why=event.reason)


def _joined(node: Node | None, recorded: Recorded, event: NodeJoined) -> Node:
    """Take the agent's facts; a new boot id of a known node fences all that ran before."""
    if node is None:
        return Node(
            number=event.node,
            name=event.name,
            pool=event.pool,
            address=event.address,
            boot=event.boot,
            capacity=event.capacity,
            version=recorded.version,
        )
    return _CHANGE(
        node,
        address=event.address,
        boot=event.boot,
        capacity=event.capacity,
        version=recorded.version,
        fenced_at=node.fenced_at if node.boot == event.boot else recorded.position,
    )
