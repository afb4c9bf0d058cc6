"""Binds recovery's picture and policy to the chassis."""

from ebbtide.chassis.context import Context, Part
from ebbtide.chassis.cycle import Cycle, Pure
from ebbtide.recovery import CARD
from ebbtide.recovery.model import Picture
from ebbtide.recovery.policy import decide


def parts(context: Context) -> list[Part]:
    """Give what a process runs for this service."""
    return [Cycle(Pure(CARD, Picture, decide), context)]
