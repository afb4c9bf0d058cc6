"""What a service is, as data and as a shape; and what it decides.

Flow in one direction: the reader delivers events, the service folds them into its picture, decides
over the whole picture, and its units go to the log. Effects on the world are levels derived from
the picture.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ebbtide.contracts.envelope import Recorded, Unit


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """A service at a glance.

    Streams it alone appends to, streams it folds, events it says, what it serves.

    ``owns`` and ``reads`` are stream prefixes; ``emits`` are event tags; ``serves`` are HTTP paths
    or subjects.
    """

    name: str
    duty: str
    owns: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    emits: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to append now, and when the same picture would decide otherwise at the earliest."""

    units: tuple[Unit, ...] = ()
    wake_at: dt.datetime | None = None


class Service(Protocol):
    """A shell that binds a picture and a policy. ``fold_version`` rises when the fold changes."""

    name: str
    reads: tuple[str, ...]
    rules: int
    fold_version: int

    def restore(self, body: bytes | None) -> None:
        """Start from a snapshot's body, or from nothing."""
        ...

    def snapshot(self) -> bytes:
        """Write the picture so that :meth:`restore` gives the same."""
        ...

    def fold(self, events: Sequence[Recorded]) -> None:
        """Take events that follow those folded before into the picture."""
        ...

    def decide(self, now: dt.datetime) -> Decision:
        """Decide over the whole picture. Pure but for reading the picture; no I/O."""
        ...

    async def settle(self, dropped: Sequence[int]) -> None:
        """Bring the world in line after a cycle: answer callers, poke effects.

        ``dropped`` units were refused.
        """
        ...
