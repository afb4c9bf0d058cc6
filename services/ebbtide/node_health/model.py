"""Node health's picture: the nodes, and whose agents may connect.

What it has seen of their leases is kept beside it, by name.
"""

from collections.abc import Iterable

import msgspec

from ebbtide.contracts.agents import Lease
from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.events import TokenCreated, TokenRevoked
from ebbtide.contracts.events.node import NodeEvent
from ebbtide.contracts.ids import NodeName, NodeNumber, TokenId
from ebbtide.model import node
from ebbtide.model.node import Node


class Picture(msgspec.Struct, kw_only=True):
    """The nodes by number, and the node of each token of an agent that is not revoked.

    ``expelled`` are nodes whose last such token was revoked; who never had any is none of them.
    """

    nodes: dict[NodeNumber, Node] = {}
    tokens: dict[TokenId, NodeName] = {}
    expelled: set[NodeName] = set()

    def apply(self, recorded: Recorded) -> None:
        """Fold one event."""
        event = recorded.body
        if isinstance(event, NodeEvent):
            self.nodes[event.node] = node.evolve(self.nodes.get(event.node), recorded, event)
        elif isinstance(event, TokenCreated) and event.kind == "agent":
            self.tokens[event.token] = NodeName(event.subject)
            self.expelled.discard(NodeName(event.subject))
        elif isinstance(event, TokenRevoked) and event.token in self.tokens:
            name = self.tokens.pop(event.token)
            if name not in self.tokens.values():
                self.expelled.add(name)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A lease key as last seen, and when on this process's monotonic clock (seconds) it was given.

    Taking a lease away is no renewal, so ``at_s`` stays what it was. ``renewed`` unless it was
    there when the key was first read: it may be as old as one likes.
    """

    revision: int
    lease: Lease
    at_s: float
    renewed: bool = True


class Sight(msgspec.Struct, kw_only=True):
    """What this process has seen since it can see.

    ``since_s`` is when it began to see without a gap: its start, or the last return of NATS, of
    Postgres or of itself from a freeze; ``met`` when it first looked for a node's lease. ``took``
    are keys that it took away, with the revision of that write.
    """

    since_s: float = 0.0
    met: dict[NodeName, float] = {}
    leases: dict[NodeName, Seen] = {}
    took: dict[NodeName, int] = {}

    def see(self, name: NodeName, seen: Seen) -> None:
        """Take in a key's present value; one that is delivered again is no renewal.

        Values come in order, so a lower revision tells of a bucket that was lost and made anew;
        there, an equal one may be another value. Taking a lease is no renewal either: what was seen
        before still says until when its agent may count on it.
        """
        known = self.leases.get(name)
        if known is not None and (seen.revision, seen.lease) == (known.revision, known.lease):
            return
        at_s = seen.at_s
        if seen.lease.taken:
            at_s = known.at_s if known is not None else 0.0
        else:
            self.took.pop(name, None)
        self.leases[name] = msgspec.structs.replace(seen, at_s=at_s, renewed=known is not None)

    def revision(self, name: NodeName) -> int:
        """Give the key's revision as last seen; 0 where it never was."""
        seen = self.leases.get(name)
        return seen.revision if seen is not None else 0

    def returned(self, name: NodeName, now_s: float) -> None:
        """Take in that the log has a node back: it renewed, whether or not this process saw it.

        What was taken of it before is taken no more.
        """
        self.took.pop(name, None)
        self.met[name] = now_s

    def meet(self, names: Iterable[NodeName], now_s: float) -> None:
        """Begin to look for the leases of nodes that have joined."""
        for name in names:
            self.met.setdefault(name, now_s)

    def lease_s(self, name: NodeName) -> float:
        """Give how long the node's agent lets workers run unrenewed, as its own lease says."""
        seen = self.leases.get(name)
        return seen.lease.lease_ms / 1000 if seen is not None else 0.0

    def silent_s(self, name: NodeName, now_s: float) -> float:
        """Give for how long the node's lease was not renewed, as far as this process can know."""
        seen = self.leases.get(name)
        renewed_s = seen.at_s if seen is not None else 0.0
        return now_s - max(renewed_s, self.met.get(name, 0.0), self.since_s)
