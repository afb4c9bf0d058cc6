"""The log's own words: position, new events, units, and events as recorded."""

import datetime as dt
from typing import NamedTuple

import msgspec

from ebbtide.contracts.events import Event
from ebbtide.contracts.ids import Workspace

PLATFORM = Workspace("_")
"""The workspace of what belongs to nobody: nodes, pools, quotas, tokens."""


class Position(NamedTuple):
    """A place in the log: the ``number``-th event of history ``epoch``; orders as a tuple."""

    epoch: int
    number: int


class Append(msgspec.Struct, frozen=True, kw_only=True):
    """One event to be said.

    ``expected`` is the version its stream must have had at ``read_to`` (0: the stream must be new;
    None: any). ``closes`` says that nothing will ever be appended to the stream again.
    """

    stream: str
    body: Event
    expected: int | None = None
    workspace: Workspace = PLATFORM
    actor: str = ""
    cause: str = ""
    trace: str = ""
    closes: bool = False


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """Appends that stand or fall whole.

    ``unmoved`` streams were read and must not have moved since.
    """

    appends: tuple[Append, ...]
    unmoved: tuple[str, ...] = ()


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An event as the log holds it.

    ``at`` is stamped by the log, in UTC, and never falls. ``service`` said it, having read to
    ``read_to`` and decided at ``decided_at`` under ``rules``.
    """

    epoch: int
    position: int
    stream: str
    version: int
    event_id: str
    at: dt.datetime
    workspace: Workspace
    actor: str
    cause: str
    service: str
    read_to: int
    decided_at: dt.datetime
    rules: int
    trace: str
    body: Event


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an append.

    What was recorded, which units were dropped, the service's new revision.

    ``positions`` has one range (first, last) per unit that stood, None for one that was dropped.
    """

    positions: tuple[tuple[int, int] | None, ...]
    dropped: tuple[int, ...]
    revision: int
    epoch: int
