"""Arithmetic of resource vectors.

Plain dicts of integers as :mod:`ebbtide.contracts.units` defines.
"""

from collections.abc import Iterable, Mapping

from ebbtide.contracts.units import MILLI, is_gpu

Vector = Mapping[str, int]


def total(vectors: Iterable[Vector]) -> dict[str, int]:
    """Add vectors up; a name that one lacks counts as zero in it."""
    result: dict[str, int] = {}
    for vector in vectors:
        for name, amount in vector.items():
            result[name] = result.get(name, 0) + amount
    return result


def times(vector: Vector, count: int) -> dict[str, int]:
    """Multiply a vector by a whole number."""
    return {name: amount * count for name, amount in vector.items()}


def lacking(need: Vector, have: Vector) -> dict[str, int]:
    """Give by how much ``have`` falls short of ``need``; empty if it does not.

    Only amounts are compared: whether one device has room for a fraction, :mod:`fit` says.
    """
    return {
        name: amount - have.get(name, 0)
        for name, amount in need.items()
        if amount > have.get(name, 0)
    }


def within(use: Vector, need: Vector, ceiling: Vector) -> dict[str, int]:
    """Give by how much ``use`` plus ``need`` exceeds ``ceiling``.

    What it does not name is unlimited.

    A need for any model of GPU counts against ``gpu``; one for a model against both.
    """
    over: dict[str, int] = {}
    for name, limit in ceiling.items():
        want = _counted(use, name) + _counted(need, name)
        if _counted(need, name) and want > limit:
            over[name] = want - limit
    return over


def _counted(vector: Vector, name: str) -> int:
    if name != "gpu":
        return vector.get(name, 0)
    return sum(amount for key, amount in vector.items() if is_gpu(key))


def gpu_need(vector: Vector) -> tuple[str, int]:
    """Give the GPU name that a request asks for (``gpu`` means any model) and the amount.

    ("", 0) for none.
    """
    for name, amount in vector.items():
        if is_gpu(name):
            return name, amount
    return "", 0


def gpu_model(capacity: Vector) -> str:
    """Give the name of the GPUs that a node has (a node has one model); empty if it has none."""
    return next((name for name in capacity if name.startswith("gpu/")), "")


def devices_of(capacity: Vector) -> int:
    """Give how many GPUs a node has."""
    return capacity.get(gpu_model(capacity), 0) // MILLI
