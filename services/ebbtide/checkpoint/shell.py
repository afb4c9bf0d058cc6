"""Binds the catalogue to the bus: reports in, and an answer once the log holds them."""

import datetime as dt
from collections.abc import Callable, Sequence

import msgspec
import structlog

from ebbtide.chassis.asked import Asked, agents_word
from ebbtide.chassis.bus import Message, Subscription
from ebbtide.chassis.context import Context, Part
from ebbtide.chassis.cycle import Cycle, Folding
from ebbtide.chassis.ears import Ears
from ebbtide.chassis.service import Decision
from ebbtide.checkpoint import CARD
from ebbtide.checkpoint.model import Picture
from ebbtide.checkpoint.policy import answer, decide
from ebbtide.contracts import subjects
from ebbtide.contracts.agents import CheckpointReport

_log = structlog.get_logger()


class Catalogue(Folding[Picture]):
    """The checkpoint service: a picture, and the reports that wait for an answer."""

    def __init__(self, context: Context) -> None:
        super().__init__(CARD, Picture)
        self._cell, self._bus = context.cell, context.bus
        self._waiting: Asked[tuple[str, CheckpointReport]] = Asked(context.clock)
        self.poke_cycle: Callable[[], None] = lambda: None

    def decide(self, now: dt.datetime) -> Decision:
        """Decide over the picture and what agents reported."""
        return decide(self.picture, [said for _, said in self._waiting.open()])

    async def settle(self, dropped: Sequence[int]) -> None:
        """Answer every report that is settled."""
        for reply, (node, report) in self._waiting.open():
            ack = answer(self.picture, node, report)
            if ack is not None:
                self._waiting.answered(reply)
                await self._bus.publish(reply, msgspec.json.encode(ack))

    async def listen(self) -> list[Subscription]:
        """Begin to hear agents."""
        topic = subjects.agents(self._cell, "checkpoint")
        return [await self._bus.subscribe(topic, self._on_report, queue=CARD.name)]

    async def _on_report(self, message: Message) -> None:
        report = agents_word(self._cell, message, CheckpointReport)
        if report is None:
            return
        self._waiting.take(message.reply, (subjects.node_of(message.subject), report))
        self.poke_cycle()


def parts(context: Context) -> list[Part]:
    """Give what a process runs for this service."""
    catalogue = Catalogue(context)
    cycle = Cycle(catalogue, context)
    catalogue.poke_cycle = cycle.poke
    return [cycle, Ears("checkpoint.ears", catalogue.listen)]
