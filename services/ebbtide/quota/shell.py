"""Binds the quota service's picture and policy to the chassis."""

import msgspec

from ebbtide.chassis.context import Context, Part
from ebbtide.chassis.cycle import Cycle, Pure
from ebbtide.chassis.settings import load
from ebbtide.contracts.units import parse_vector_line
from ebbtide.quota import CARD
from ebbtide.quota.model import Picture
from ebbtide.quota.policy import decide


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """``EBB_QUOTA_CEILING``: limits of the default quota, as ``cpu=64,memory=256Gi``.

    Empty is none.

    It is used once, when the quota is made; afterwards the log says what the quota is.
    """

    ceiling: str = ""


class Quota(Pure[Picture]):
    """The quota service; its picture starts with the settings in it."""

    def __init__(self, cell: str, ceiling: dict[str, int]) -> None:
        super().__init__(CARD, Picture, decide)
        self._cell = cell
        self._ceiling = ceiling

    def restore(self, body: bytes | None) -> None:
        """Start from a snapshot's body, or from nothing.

        Settings are of this start, not of the snapshot.
        """
        super().restore(body)
        self.picture.cell = self._cell
        self.picture.ceiling = self._ceiling


def parts(context: Context) -> list[Part]:
    """Give what a process runs for this service."""
    settings = load(Settings, context.environ, "EBB_QUOTA_")
    ceiling = parse_vector_line("EBB_QUOTA_CEILING", settings.ceiling)
    return [Cycle(Quota(context.cell, ceiling), context)]
