"""Jobs, nodes, quotas and newest checkpoints together: what most services' pictures are built on.

A job leaves the world when it is final and holds nothing, so a world is as large as what is alive.
It mutates inside :meth:`World.apply` for speed, still without any I/O.
"""

from typing import get_args

import msgspec

from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.errors import InvariantBroken
from ebbtide.contracts.events import (
    CheckpointCommitted,
    Event,
    JobSubmitted,
    QuotaChanged,
)
from ebbtide.contracts.events.job import JobEvent
from ebbtide.contracts.events.node import NodeEvent
from ebbtide.contracts.events.pool import PoolEvent
from ebbtide.contracts.ids import JobId, NodeName, NodeNumber, PoolName, QuotaName
from ebbtide.model import job as jobs
from ebbtide.model import node as nodes
from ebbtide.model.job import Job
from ebbtide.model.node import Node

_JOB: frozenset[type] = frozenset(get_args(JobEvent))
_NODE: frozenset[type] = frozenset(get_args(NodeEvent))
_POOL: frozenset[type] = frozenset(get_args(PoolEvent))


class World(msgspec.Struct, kw_only=True):
    """What is alive, by id.

    ``pools`` and ``quota_version`` are versions, for expectations and guards.
    """

    jobs: dict[JobId, Job] = {}
    nodes: dict[NodeNumber, Node] = {}
    numbers: dict[NodeName, NodeNumber] = {}
    pools: dict[PoolName, int] = {}
    quotas: dict[QuotaName, dict[str, int]] = {}
    quota_version: int = 0
    checkpoints: dict[JobId, CheckpointCommitted] = {}

    def apply(self, recorded: Recorded) -> Job | Node | None:
        """Fold one event; give the job or node that it speaks of, as it is now."""
        event = recorded.body
        kind = type(event)
        if kind in _JOB:
            return self._job(recorded, event)  # type: ignore[arg-type]  # narrowed by the set
        if kind in _POOL:
            return self._pool(recorded, event)  # type: ignore[arg-type]  # narrowed by the set
        if kind in _NODE:
            return self._node(recorded, event)  # type: ignore[arg-type]  # narrowed by the set
        self._rest(recorded, event)
        return None

    def _job(self, recorded: Recorded, event: JobEvent) -> Job:
        if isinstance(event, JobSubmitted):
            job = jobs.submitted(recorded, event)
        else:
            job = jobs.evolve(self._known(event.job), recorded, event)
        self._keep(job)
        return job

    def _pool(self, recorded: Recorded, event: PoolEvent) -> Job:
        self.pools[event.pool] = recorded.version
        job = jobs.hold(self._known(event.job), event)
        self._keep(job)
        return job

    def _node(self, recorded: Recorded, event: NodeEvent) -> Node:
        node = nodes.evolve(self.nodes.get(event.node), recorded, event)
        self.nodes[event.node] = node
        self.numbers[node.name] = node.number
        return node

    def _rest(self, recorded: Recorded, event: Event) -> None:
        if isinstance(event, QuotaChanged):
            self.quotas[event.quota] = event.ceiling
            self.quota_version = recorded.version
        elif isinstance(event, CheckpointCommitted) and event.job in self.jobs:
            self.checkpoints[event.job] = event

    def _known(self, job: JobId) -> Job:
        if job not in self.jobs:
            raise InvariantBroken(f"{job} is spoken of but not alive")
        return self.jobs[job]

    def _keep(self, job: Job) -> None:
        """Forget a job that is final and holds nothing."""
        if job.stage == "final" and job.placement is None:
            self.jobs.pop(job.id, None)
            self.checkpoints.pop(job.id, None)
        else:
            self.jobs[job.id] = job

    def node_named(self, name: NodeName) -> Node | None:
        """Find a node by its name; each report of an agent asks."""
        number = self.numbers.get(name)
        return None if number is None else self.nodes[number]


def quota_stream(cell: str) -> str:
    """Name the one stream of a cell's quota tree, so that a placement can guard all of it."""
    return f"quota-{cell}"


def pool_stream(pool: PoolName) -> str:
    """Name the stream of a pool's placements."""
    return f"pool-{pool}"
