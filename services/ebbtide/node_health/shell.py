"""Binds node health to the bus: leases in, leases taken away.

It trusts its own monotonic clock only while it runs without a gap: after a freeze of its own, a
return of NATS, or a time without Postgres, every node has a whole lease again.
"""

import datetime as dt
from collections.abc import Callable, Sequence

import msgspec
import structlog

from ebbtide.chassis.bus import Entry, Subscription
from ebbtide.chassis.context import Context, Part
from ebbtide.chassis.cycle import Cycle, Folding
from ebbtide.chassis.ears import Ears
from ebbtide.chassis.service import Decision
from ebbtide.chassis.settings import load
from ebbtide.contracts import subjects
from ebbtide.contracts.agents import Lease
from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.errors import Conflict, Unavailable
from ebbtide.contracts.events import NodeReturned
from ebbtide.contracts.ids import NodeName
from ebbtide.node_health import CARD
from ebbtide.node_health.model import Picture, Seen, Sight
from ebbtide.node_health.policy import Limits, decide

GAP_OF_LEASE = 4
"""A pause of its own longer than this part of a lease makes the service begin to see anew."""

_log = structlog.get_logger()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """``EBB_LEASE_S``: how long a node may be out of touch.

    ``EBB_LEASE_MARGIN_S`` covers timers.
    """

    lease_s: float = 180.0
    lease_margin_s: float = 0.0

    def limits(self) -> Limits:
        """Give the limits; the margin is a tenth of the lease unless it is set."""
        return Limits(lease_s=self.lease_s, margin_s=self.lease_margin_s or self.lease_s / 10)


class NodeHealth(Folding[Picture]):
    """The node-health service: a picture of nodes, and a sight of leases."""

    fold_version = 4

    def __init__(self, context: Context, limits: Limits) -> None:
        super().__init__(CARD, Picture)
        self._bus, self._clock = context.bus, context.clock
        self._bucket = subjects.lease_bucket(context.cell)
        self._limits = limits
        self._sight = Sight(since_s=context.clock.monotonic_s())
        self._looked_s = self._sight.since_s
        self._take: tuple[tuple[NodeName, int], ...] = ()
        self.poke_cycle: Callable[[], None] = lambda: None

    def fold(self, events: Sequence[Recorded]) -> None:
        """Take events in; a node that another replica saw renewing is silent no longer."""
        super().fold(events)
        for recorded in events:
            if isinstance(recorded.body, NodeReturned):
                name = self.picture.nodes[recorded.body.node].name
                self._sight.returned(name, self._clock.monotonic_s())

    def decide(self, now: dt.datetime) -> Decision:
        """Judge every node by what was seen of its lease; blind, begin to see again and again."""
        now_s = self._clock.monotonic_s()
        gap_s = now_s - self._looked_s
        if gap_s > self._limits.lease_s / GAP_OF_LEASE or not self._bus.connected:
            self._begin(now_s)
        self._looked_s = now_s
        self._sight.meet((one.name for one in self.picture.nodes.values()), now_s)
        verdicts = decide(self.picture, self._sight, self._limits, now_s, now)
        self._take = verdicts.take
        return verdicts.decision

    async def settle(self, dropped: Sequence[int]) -> None:
        """Take leases away; a write that was too late means that the node is alive after all.

        Each at the revision that was judged: a renewal that came meanwhile is not to be taken.
        """
        for name, revision in self._take:
            lease = Lease(
                node=name,
                boot="",
                holder=CARD.name,
                count=0,
                lease_ms=round(self._sight.lease_s(name) * 1000),
                taken=True,
            )
            try:
                self._sight.took[name] = await self._bus.kv_put(
                    self._bucket, name, msgspec.json.encode(lease), revision
                )
                _log.info("lease.taken", node=name)
            except Conflict:
                await self._look(name)
            except Unavailable:
                return

    async def listen(self) -> list[Subscription]:
        """Begin to see leases."""
        await self._bus.ensure_bucket(self._bucket)
        self._bus.on_return(self._on_return)
        return [await self._bus.kv_watch(self._bucket, ">", self._on_lease)]

    def _begin(self, now_s: float) -> None:
        """Begin to see anew; what was taken must be seen to stand again."""
        self._sight.since_s = now_s
        self._sight.took.clear()

    async def _on_return(self) -> None:
        self._begin(self._clock.monotonic_s())

    async def _on_lease(self, entry: Entry) -> None:
        try:
            lease = msgspec.json.decode(entry.value, type=Lease)
        except msgspec.MsgspecError as error:
            _log.warning("lease.malformed", key=entry.key, error=str(error))
            return
        name = NodeName(entry.key)
        seen = Seen(revision=entry.revision, lease=lease, at_s=self._clock.monotonic_s())
        self._sight.see(name, seen)
        if lease.taken and lease.holder == CARD.name:
            self._sight.took[name] = entry.revision
        if self._is_down(name):
            self.poke_cycle()

    async def _look(self, name: NodeName) -> None:
        entry = await self._bus.kv_get(self._bucket, name)
        if entry is not None:
            await self._on_lease(entry)

    def _is_down(self, name: NodeName) -> bool:
        return any(
            one.name == name and one.reachability != "ready" for one in self.picture.nodes.values()
        )


def parts(context: Context) -> list[Part]:
    """Give what a process runs for this service."""
    health = NodeHealth(context, load(Settings, context.environ).limits())
    cycle = Cycle(health, context)
    health.poke_cycle = cycle.poke
    return [cycle, Ears("node_health.ears", health.listen)]
