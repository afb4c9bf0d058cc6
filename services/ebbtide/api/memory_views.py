"""Views in memory: for tests and simulations, where the log is in memory too."""

from ebbtide.api.model import Alive, Picture, Row, Token
from ebbtide.api.views import Batch, JobQuery, Stored
from ebbtide.contracts.errors import StaleEpoch
from ebbtide.contracts.http import Phase
from ebbtide.contracts.ids import JobId, NodeNumber, TokenId, Workspace
from ebbtide.model.node import Node


class MemoryViews:
    """Keeps every row in a dict; the twin of the views in Postgres."""

    def __init__(self) -> None:
        self._epoch = 0
        self._position = 0
        self._jobs: dict[JobId, Alive] = {}
        self._nodes: dict[NodeNumber, Node] = {}
        self._tokens: dict[TokenId, Token] = {}
        self._counts: dict[Workspace, dict[Phase, int]] = {}

    async def open(self) -> None:
        """Nothing to get ready."""

    async def load(self) -> Stored:
        """Give what was kept."""
        picture = Picture(
            jobs={name: alive for name, alive in self._jobs.items() if alive.row.is_alive},
            nodes=dict(self._nodes),
            tokens=dict(self._tokens),
            counts={workspace: dict(phases) for workspace, phases in self._counts.items()},
        )
        picture.recharge()
        return Stored(epoch=self._epoch, position=self._position, picture=picture)

    async def reset(self, epoch: int) -> None:
        """Throw everything away."""
        self._epoch, self._position = epoch, 0
        for kept in (self._jobs, self._nodes, self._tokens, self._counts):
            kept.clear()

    async def save(self, batch: Batch) -> None:
        """Keep a batch that is ahead of what is kept."""
        if batch.epoch != self._epoch:
            raise StaleEpoch(f"the views are of epoch {self._epoch}, not {batch.epoch}")
        if batch.position <= self._position:
            return
        self._position = batch.position
        self._jobs.update((alive.row.id, alive) for alive in batch.jobs)
        self._nodes.update((node.number, node) for node in batch.nodes)
        self._tokens.update((token.id, token) for token in batch.tokens)
        self._counts = {workspace: dict(phases) for workspace, phases in batch.counts.items()}

    async def page(self, query: JobQuery) -> list[Row]:
        """Give at most ``query.limit`` jobs, newest first."""
        rows = [alive.row for alive in self._jobs.values() if _chosen(alive.row, query)]
        rows.sort(key=lambda row: row.submitted, reverse=True)
        return rows[: query.limit]

    async def job(self, job: JobId) -> Alive | None:
        """Give one job."""
        return self._jobs.get(job)

    async def close(self) -> None:
        """Nothing to let go of."""


def _chosen(row: Row, query: JobQuery) -> bool:
    return (
        query.workspace in ("", row.workspace)
        and (not query.phases or row.phase in query.phases)
        and query.name in ("", row.name)
        and query.actor in ("", row.actor)
        and (query.before == 0 or row.submitted < query.before)
    )
