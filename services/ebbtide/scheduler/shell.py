"""Binds the scheduler's picture and policy to the chassis, and answers why a job waits."""

import msgspec
import structlog

from ebbtide.chassis.bus import Message, Subscription
from ebbtide.chassis.context import Context, Part
from ebbtide.chassis.cycle import Cycle, Pure
from ebbtide.chassis.ears import Ears
from ebbtide.contracts import subjects
from ebbtide.contracts.waits import AskWhy
from ebbtide.scheduler import CARD
from ebbtide.scheduler.explain import explain
from ebbtide.scheduler.model import Picture
from ebbtide.scheduler.policy import decide

_log = structlog.get_logger()


class Scheduler(Pure[Picture]):
    """The scheduler; its picture knows the cell, whose quota tree it guards."""

    def __init__(self, context: Context) -> None:
        super().__init__(CARD, Picture, decide)
        self._cell, self._bus, self._clock = context.cell, context.bus, context.clock

    def restore(self, body: bytes | None) -> None:
        """Start from a snapshot's body, or from nothing."""
        super().restore(body)
        self.picture.cell = self._cell

    async def listen(self) -> list[Subscription]:
        """Begin to answer; of several replicas one is asked."""
        topic = subjects.ask(self._cell, CARD.name, "why")
        return [await self._bus.subscribe(topic, self._on_why, queue=CARD.name)]

    async def _on_why(self, message: Message) -> None:
        try:
            asked = msgspec.json.decode(message.data, type=AskWhy)
        except msgspec.MsgspecError as error:
            _log.warning("why.malformed", error=str(error))
            return
        why = explain(self.picture, asked.job, self._clock.now())
        await self._bus.publish(message.reply, msgspec.json.encode(why))


def parts(context: Context) -> list[Part]:
    """Give what a process runs for this service."""
    scheduler = Scheduler(context)
    return [Cycle(scheduler, context), Ears("scheduler.ears", scheduler.listen)]
