"""Binds fleet to the bus: reports and registrations in, desired state out.

Desired state is a level: what was written last is compared with what the picture says, at start,
after every re-connection, each minute, and for the nodes that an event touched.
"""

import asyncio
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import structlog

from ebbtide.chassis.asked import Asked, agents_word
from ebbtide.chassis.bus import Entry, Message, Subscription
from ebbtide.chassis.context import Context, Part
from ebbtide.chassis.cycle import Cycle, Folding
from ebbtide.chassis.ears import Ears
from ebbtide.chassis.effector import Effector
from ebbtide.chassis.service import Decision
from ebbtide.contracts import seals, subjects
from ebbtide.contracts.agents import Desired, Registered, Registration, Report, ReportAck
from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.errors import Conflict, Malformed
from ebbtide.contracts.ids import NodeName, NodeNumber, TokenId
from ebbtide.contracts.units import DEVICES_MAX
from ebbtide.fleet import CARD
from ebbtide.fleet.desired import desired
from ebbtide.fleet.inbox import Inbox, is_settled
from ebbtide.fleet.model import Picture
from ebbtide.fleet.policy import decide, has_changed
from ebbtide.model.resources import devices_of

COMPARE_EVERY_S = 60.0
EASE_S = 0.25
"""How long a node with less to do may wait for the word: mostly the next start brings it along."""

Said = TypeVar("Said", Report, Registration)
_log = structlog.get_logger()


class Written(NamedTuple):
    """A node's desired state as its key holds it, and the tokens under which it is sealed."""

    desired: Desired
    revision: int
    tokens: frozenset[TokenId]


NOTHING = Written(Desired(epoch=0, position=0), 0, frozenset())


class Fleet(Folding[Picture]):
    """The fleet service: a picture, an inbox, and the two effects on the bus."""

    def __init__(self, context: Context) -> None:
        super().__init__(CARD, Picture)
        self._cell, self._bus, self._clock = context.cell, context.bus, context.clock
        self._source = context.source
        self._inbox = Inbox()
        self._reports: Asked[Report] = Asked(context.clock)
        self._registrations: Asked[Registration] = Asked(context.clock)
        self._written: dict[NodeNumber, Written] = {}
        self._due: dict[NodeNumber, None] = {}
        self._eased: dict[NodeNumber, None] = {}
        self._easing: asyncio.TimerHandle | None = None
        self._compared_s = context.clock.monotonic_s()
        self._is_current = False
        self.poke_cycle: Callable[[], None] = lambda: None
        self.poke_writer: Callable[[], None] = lambda: None

    def fold(self, events: Sequence[Recorded]) -> None:
        """Take events in, and have touched nodes written at once: workers wait for it."""
        super().fold(events)
        self._have_written()

    def decide(self, now: dt.datetime) -> Decision:
        """Decide over the picture and what agents said; only from now on are nodes written.

        The cycle decides first when it has read what the log held at its start. A picture of before
        would have nodes do what is long over.
        """
        self._is_current = True
        # A new epoch may have no event of its own yet; without it, agents that know more of the
        # old one would be waited for by nobody.
        self.picture.epoch = max(self.picture.epoch, self._source.position.epoch)
        return decide(self.picture, self._inbox, now)

    async def settle(self, dropped: Sequence[int]) -> None:
        """Have nodes written; answer agents whose word is in the log."""
        self._inbox.forget(self.picture)
        self._have_written()
        await self._answer_reports()
        await self._answer_registrations()

    def _have_written(self) -> None:
        """Have the writer look at nodes that were touched or whose back-off is over."""
        now = self._clock.now()
        for name in list(self.picture.delayed):
            job = self.picture.world.jobs[name]
            if job.not_before is not None and job.not_before <= now:
                del self.picture.delayed[name]
                if job.placement is not None:
                    self._due.update((place.node, None) for place in job.placement.places)
        if self._due or self.picture.touched:
            self._due.update(self.picture.touched)
            self.picture.touched.clear()
            self.poke_writer()
        if self.picture.eased:
            self._eased.update(self.picture.eased)
            self.picture.eased.clear()
            if self._easing is None:
                self._easing = asyncio.get_running_loop().call_later(EASE_S, self._ease)

    def _ease(self) -> None:
        """Have nodes written that have less to do and that no start has written meanwhile."""
        self._easing = None
        self._due.update(self._eased)
        self._eased.clear()
        self.poke_writer()

    async def listen(self) -> list[Subscription]:
        """Begin to hear agents, and ask them all for everything: the inbox starts empty."""
        bus, cell = self._bus, self._cell
        await bus.ensure_bucket(subjects.desired_bucket(cell))
        listening = [
            await bus.subscribe(subjects.agents(cell, verb), handler, queue=CARD.name)
            for verb, handler in (("report", self._on_report), ("register", self._on_register))
        ]
        bus.on_return(self._ask_again)
        await self._ask_again()
        return listening

    async def _ask_again(self) -> None:
        self._written.clear()
        self._due.update((number, None) for number in self.picture.world.nodes)
        self.poke_writer()
        await self._bus.publish(subjects.tell_all(self._cell), b"")

    async def _on_report(self, message: Message) -> None:
        report, picture = _said(self._cell, message, Report), self.picture
        if report is None:
            return
        if (report.epoch, report.position) > (picture.epoch, picture.position):
            return  # another replica has read further; the agent will say it again
        self._inbox.take(picture, report)
        self._reports.take(message.reply, report)
        self.poke_cycle()

    async def _on_register(self, message: Message) -> None:
        said = _said(self._cell, message, Registration)
        if said is None:
            return
        if devices_of(said.capacity) > DEVICES_MAX:
            _log.warning("registration.too_many_devices", node=said.node)
            return
        self._inbox.registrations[said.node] = said
        self._registrations.take(message.reply, said)
        self.poke_cycle()

    async def _answer_reports(self) -> None:
        """Answer reports that are settled whole; of others the agent will say again what is not."""
        picture = self.picture
        for reply, report in self._reports.open():
            settled = tuple(is_settled(picture, one) for one in report.workers)
            if not all(settled) and picture.world.node_named(report.node) is not None:
                continue
            self._reports.answered(reply)
            ack = ReportAck(epoch=picture.epoch, position=picture.position, settled=settled)
            await self._bus.publish(reply, msgspec.json.encode(ack))

    async def _answer_registrations(self) -> None:
        for name, said in list(self._inbox.registrations.items()):
            known = self.picture.world.node_named(name)
            if known is not None and not has_changed(known, said):
                del self._inbox.registrations[name]
        for reply, said in self._registrations.open():
            known = self.picture.world.node_named(said.node)
            if known is None or has_changed(known, said):
                continue
            self._registrations.answered(reply)
            answer = Registered(
                number=known.number, epoch=self.picture.epoch, position=self.picture.position
            )
            await self._bus.publish(reply, msgspec.json.encode(answer))

    async def write(self) -> None:
        """Write the desired state of every due node that differs from what was written last."""
        if not self._is_current:
            return
        if self._clock.monotonic_s() - self._compared_s >= COMPARE_EVERY_S:
            self._compared_s = self._clock.monotonic_s()
            self._written.clear()
            self._due.update((number, None) for number in self.picture.world.nodes)
        while self._due:
            number = next(iter(self._due))
            del self._due[number]
            self._eased.pop(number, None)
            # Asked per node: a back-off may have ended while another node was written.
            now = self._clock.now()
            try:
                await self._write(number, desired(self.picture, self._inbox, number, now))
            except BaseException:
                self._due[number] = None
                raise

    async def _write(self, number: NodeNumber, wanted: Desired) -> None:
        node = self.picture.world.nodes[number]
        bucket = subjects.desired_bucket(self._cell)
        keys = self.picture.keys.get(node.name, {})
        if number not in self._written:
            entry = await self._bus.kv_get(bucket, node.name)
            self._written[number] = NOTHING if entry is None else read(node.name, entry, keys)
        last, revision, tokens = self._written[number]
        known, wants = ((one.epoch, one.boot, one.attempts) for one in (last, wanted))
        if known == wants and tokens == keys.keys():
            return
        if (last.epoch, last.position) > (wanted.epoch, wanted.position):
            return  # another replica has read further; what it read will have us look again
        try:
            value = seals.seal(node.name, msgspec.json.encode(wanted), keys)
            revision = await self._bus.kv_put(bucket, node.name, value, revision)
        except Conflict:
            self._written.pop(number, None)  # or all was forgotten meanwhile: the bus came back
            raise
        except Malformed as error:
            # One node's orders that no message can carry must not keep the others from theirs.
            _log.error("desired.too_large", node=node.name, error=str(error))
            return
        self._written[number] = Written(wanted, revision, frozenset(keys))


def _said(cell: str, message: Message, kind: type[Said]) -> Said | None:
    """Read what an agent says; nothing where it cannot be read, or speaks for another node."""
    said = agents_word(cell, message, kind)
    if said is not None and said.node != subjects.node_of(message.subject):
        _log.warning("agent.of_another_node", subject=message.subject, node=said.node)
        return None
    return said


def read(name: NodeName, entry: Entry, keys: Mapping[TokenId, str]) -> Written:
    """Read what a key holds; what no fleet wrote there counts as nothing, and is written over."""
    try:
        seals.check(name, entry.value, keys)
        desired = msgspec.json.decode(seals.body_of(entry.value), type=Desired)
    except (Malformed, msgspec.MsgspecError) as error:
        _log.warning("desired.not_ours", node=name, error=str(error))
        return NOTHING._replace(revision=entry.revision)
    return Written(desired, entry.revision, seals.tokens_of(entry.value))


def parts(context: Context) -> list[Part]:
    """Give what a process runs for this service."""
    fleet = Fleet(context)
    cycle = Cycle(fleet, context)
    writer = Effector("fleet.desired", fleet.write, COMPARE_EVERY_S)
    fleet.poke_cycle, fleet.poke_writer = cycle.poke, writer.poke
    return [cycle, writer, Ears("fleet.ears", fleet.listen)]
