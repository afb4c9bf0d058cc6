"""What fits where: the arithmetic of nodes, devices and gangs, shared by quota and scheduler.

Pure and deterministic: ties are broken by node number. A gang is tried whole.
"""

from collections.abc import Iterable, Sequence

import msgspec

from ebbtide.contracts.events import Place
from ebbtide.contracts.ids import NodeNumber
from ebbtide.contracts.job_spec import JobSpec
from ebbtide.contracts.units import MILLI, is_gpu
from ebbtide.model.node import Node
from ebbtide.model.resources import Vector, devices_of, gpu_model, gpu_need, lacking, times, total


class Free(msgspec.Struct, kw_only=True):
    """What is left of one node: amounts, and the free thousandths of each device."""

    number: NodeNumber
    left: dict[str, int]
    devices: list[int]
    model: str

    def copy(self) -> "Free":
        """Give an independent copy, for trying."""
        return Free(
            number=self.number, left=dict(self.left), devices=list(self.devices), model=self.model
        )


def empty(node: Node) -> Free:
    """Give a node's free capacity with nothing placed on it."""
    return Free(
        number=node.number,
        left=dict(node.capacity),
        devices=[MILLI] * devices_of(node.capacity),
        model=gpu_model(node.capacity),
    )


def take(free: Free, need: Vector) -> Place | None:
    """Take ``need`` from ``free`` and give the place, or leave it as it is and give None.

    A fraction of a device goes to the fullest device that still has room, whole devices to the
    lowest numbers that are entirely free.
    """
    gpu, amount = gpu_need(need)
    want = {(free.model if name == gpu else name): part for name, part in need.items()}
    if amount and gpu not in ("gpu", free.model):
        return None
    if lacking(want, free.left):
        return None
    chosen = _devices(free.devices, amount)
    if chosen is None:
        return None
    share = amount if 0 < amount < MILLI else 0
    for device in chosen:
        free.devices[device] -= share or MILLI
    for name, part in want.items():
        free.left[name] -= part
    return Place(free.number, sum(1 << device for device in chosen), share)


def _devices(devices: Sequence[int], amount: int) -> list[int] | None:
    if amount == 0:
        return []
    if amount < MILLI:
        room = [(left, index) for index, left in enumerate(devices) if left >= amount]
        return [min(room)[1]] if room else None
    whole = [index for index, left in enumerate(devices) if left == MILLI]
    count = amount // MILLI
    return whole[:count] if len(whole) >= count else None


def hold(free: Free, place: Place, need: Vector) -> None:
    """Take for ``need`` exactly what ``place`` says, as the log holds it already."""
    _move(free, place, need, -1)


def give(free: Free, place: Place, need: Vector) -> None:
    """Put back what ``place`` took for ``need``."""
    _move(free, place, need, +1)


def _move(free: Free, place: Place, need: Vector, sign: int) -> None:
    gpu, _ = gpu_need(need)
    for name, part in need.items():
        key = free.model if name == gpu else name
        free.left[key] = free.left.get(key, 0) + sign * part
    for device in range(len(free.devices)):
        if place.devices >> device & 1:
            free.devices[device] += sign * (place.share_milli or MILLI)


def place_gang(spec: JobSpec, nodes: dict[NodeNumber, Free]) -> tuple[Place, ...] | None:
    """Place every worker in rank order by best fit, taking from ``nodes``.

    None (nothing taken) if not all fit.

    Best fit: the node that is left with the least, so that whole nodes stay free for larger gangs.
    Complexity: workers times nodes.
    """
    touched: dict[NodeNumber, Free] = {}
    places: list[Place] = []
    for role in spec.roles.values():
        for _ in range(role.replicas):
            place = _best(role.resources, nodes, touched)
            if place is None:
                return None
            places.append(place)
    nodes.update(touched)
    return tuple(places)


def _best(
    need: Vector, nodes: dict[NodeNumber, Free], touched: dict[NodeNumber, Free]
) -> Place | None:
    best: tuple[tuple[int, ...], Free] | None = None
    for number, original in nodes.items():
        free = touched.get(number, original)
        if lacking({k: v for k, v in need.items() if not is_gpu(k)}, free.left):
            continue
        rank = (sum(free.devices), free.left.get("cpu", 0), free.left.get("memory", 0), number)
        if (best is None or rank < best[0]) and take(free.copy(), need) is not None:
            best = (rank, free)
    if best is None:
        return None
    chosen = touched.setdefault(best[1].number, best[1].copy())
    return take(chosen, need)


def gang_total(spec: JobSpec) -> dict[str, int]:
    """Add up what all workers of a gang need."""
    return total(times(role.resources, role.replicas) for role in spec.roles.values())


def gang_fits_empty(spec: JobSpec, nodes: Iterable[Node]) -> bool:
    """Say whether the gang fits into ``nodes`` of one pool with nothing else on them."""
    pools: dict[str, dict[NodeNumber, Free]] = {}
    for node in nodes:
        pools.setdefault(node.pool, {})[node.number] = empty(node)
    return any(place_gang(spec, pool) is not None for pool in pools.values())


def worker_too_large(spec: JobSpec, nodes: Sequence[Node]) -> tuple[str, dict[str, int]] | None:
    """Give a role whose worker fits on no node even alone, and what the nearest node lacks."""
    for name, role in spec.roles.items():
        if any(take(empty(node), role.resources) is not None for node in nodes):
            continue
        gaps = [_gap(role.resources, node) for node in nodes]
        return name, min(gaps, key=lambda gap: (len(gap), sum(gap.values())))
    return None


def _gap(need: Vector, node: Node) -> dict[str, int]:
    gpu, _ = gpu_need(need)
    model = gpu_model(node.capacity)
    have = dict(node.capacity)
    if gpu == "gpu":
        have["gpu"] = have.get(model, 0)
    return lacking(need, have) or {gpu or "cpu": 0}
