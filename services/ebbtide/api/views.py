"""What the views keep, and the door to them: pages of jobs, and the picture as of a position.

Views are a projection: they can be thrown away and are rebuilt from the log. Two implementations
pass one suite: Postgres (``postgres_views.py``) and memory (``memory_views.py``).
"""

from typing import Protocol

import msgspec

from ebbtide.api.model import Alive, Picture, Row, Token
from ebbtide.contracts.http import Phase
from ebbtide.contracts.ids import JobId, Workspace
from ebbtide.model.node import Node

FOLD_VERSION = 2
"""Rises when the fold changes: views of another fold are rebuilt."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """The picture as of ``position`` of ``epoch``; position 0 is an empty one."""

    epoch: int
    position: int
    picture: Picture


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What changed since the last batch, up to ``position``; ``counts`` is whole."""

    epoch: int
    position: int
    jobs: tuple[Alive, ...]
    nodes: tuple[Node, ...]
    tokens: tuple[Token, ...]
    counts: dict[Workspace, dict[Phase, int]]


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs: an empty field does not choose. ``before`` is the cursor, 0 for the newest."""

    workspace: Workspace = Workspace("")
    phases: tuple[Phase, ...] = ()
    name: str = ""
    actor: str = ""
    before: int = 0
    limit: int = 50


class Views(Protocol):
    """A store of views. Every method may raise ``Unavailable``."""

    async def open(self) -> None:
        """Get ready: connect, and bring the schema up to date."""
        ...

    async def load(self) -> Stored:
        """Give what was kept by this fold; an empty picture at position 0 if there is nothing."""
        ...

    async def reset(self, epoch: int) -> None:
        """Throw everything away and begin at position 0 of ``epoch``."""
        ...

    async def save(self, batch: Batch) -> None:
        """Keep a batch and its position in one transaction.

        A batch that is not ahead of what is kept changes nothing: another replica was faster.

        Raises:
            StaleEpoch: the views are of another epoch.
        """
        ...

    async def page(self, query: JobQuery) -> list[Row]:
        """Give at most ``query.limit`` jobs, newest first."""
        ...

    async def job(self, job: JobId) -> Alive | None:
        """Give one job, also one that ended long ago."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
