"""Binds the scheduler's picture and policy to the chassis."""

from ebbtide.chassis.context import Context, Part
from ebbtide.chassis.cycle import Cycle, Pure
from ebbtide.scheduler import CARD
from ebbtide.scheduler.model import Picture
from ebbtide.scheduler.policy import decide


class Scheduler(Pure[Picture]):
    """The scheduler; its picture knows the cell, whose quota tree it guards."""

    def __init__(self, cell: str) -> None:
        super().__init__(CARD, Picture, decide)
        self._cell = cell

    def restore(self, body: bytes | None) -> None:
        """Start from a snapshot's body, or from nothing."""
        super().restore(body)
        self.picture.cell = self._cell


def parts(context: Context) -> list[Part]:
    """Give what a process runs for this service."""
    return [Cycle(Scheduler(context.cell), context)]
