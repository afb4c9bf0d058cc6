"""What is known of a node, on ``node-<number>``. Numbers are given once and never reused."""

from typing import Literal

import msgspec

from ebbtide.contracts.ids import NodeName, NodeNumber, PoolName

Cordon = Literal["cordon", "drain", "move"]
"""No new work; no new work until what runs there has ended; what runs there goes on elsewhere."""
NodeChange = Literal["cordon", "drain", "move", "uncordon", "fence"]


class NodeJoined(msgspec.Struct, frozen=True, kw_only=True, tag="node.joined"):
    """An agent registered, for the first time or with other facts than before (fleet).

    ``boot`` is the machine's boot id: a new one proves that nothing of before still runs there.
    """

    node: NodeNumber
    name: NodeName
    pool: PoolName
    address: str
    boot: str
    capacity: dict[str, int]


class NodeSuspected(msgspec.Struct, frozen=True, kw_only=True, tag="node.suspected"):
    """The node has missed renewals of its lease, or its agent may not connect any more.

    No new work for it (node_health).
    """

    node: NodeNumber
    why: str


class NodeLost(msgspec.Struct, frozen=True, kw_only=True, tag="node.lost"):
    """The node's lease was taken and has run out.

    What had ``when_cut_off = "stop"`` is gone (node_health).
    """

    node: NodeNumber
    why: str


class NodeReturned(msgspec.Struct, frozen=True, kw_only=True, tag="node.returned"):
    """The node renews its lease again (node_health)."""

    node: NodeNumber


class NodeFenced(msgspec.Struct, frozen=True, kw_only=True, tag="node.fenced"):
    """Nothing placed on the node before this still runs or can have an effect (node_health)."""

    node: NodeNumber
    why: str


class NodeChangeRequested(msgspec.Struct, frozen=True, kw_only=True, tag="node.change_requested"):
    """A person wants the node used otherwise, or vouches that nothing runs there (api)."""

    node: NodeNumber
    change: NodeChange
    reason: str = ""


class NodeCordoned(msgspec.Struct, frozen=True, kw_only=True, tag="node.cordoned"):
    """No new work goes to the node, in the way of ``mode`` (node_health)."""

    node: NodeNumber
    mode: Cordon
    why: str


class NodeUncordoned(msgspec.Struct, frozen=True, kw_only=True, tag="node.uncordoned"):
    """New work may go to the node again (node_health)."""

    node: NodeNumber


NodeEvent = (
    NodeJoined
    | NodeSuspected
    | NodeLost
    | NodeReturned
    | NodeFenced
    | NodeChangeRequested
    | NodeCordoned
    | NodeUncordoned
)
