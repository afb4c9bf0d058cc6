"""A job's workers beside their places: who runs what, on which node."""

from collections.abc import Iterator

from ebbtide.contracts.events import GangPlaced
from ebbtide.contracts.ids import NodeNumber
from ebbtide.contracts.job_spec import JobSpec
from ebbtide.model.resources import Vector


def needs_of(spec: JobSpec) -> list[Vector]:
    """Give the request of every worker in rank order."""
    return [role.resources for role in spec.roles.values() for _ in range(role.replicas)]


def nodes_of(placement: GangPlaced) -> tuple[NodeNumber, ...]:
    """Give the nodes of a placement, each once, in rank order."""
    return tuple(dict.fromkeys(place.node for place in placement.places))


def workers_on(placement: GangPlaced, node: NodeNumber) -> Iterator[int]:
    """Give the workers that a placement puts on ``node``."""
    return (worker for worker, place in enumerate(placement.places) if place.node == node)
