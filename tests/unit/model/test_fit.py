"""What fits where.

Nothing is taken twice, nothing is lost, and a gang is placed whole or not at all.
"""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ebbtide.contracts.ids import NodeName, NodeNumber, PoolName
from ebbtide.contracts.units import MILLI
from ebbtide.model import fit
from ebbtide.model.job_places import needs_of
from ebbtide.model.node import Node
from ebbtide.testing.builders import spec


def _node(
    number: int, cpu: int = 4, memory: int = 16384, gpus: int = 0, model: str = "h100"
) -> Node:
    capacity = {"cpu": cpu * MILLI, "memory": memory}
    if gpus:
        capacity[f"gpu/{model}"] = gpus * MILLI
    return Node(
        number=NodeNumber(number),
        name=NodeName(f"n{number}"),
        pool=PoolName("default"),
        address="",
        boot="",
        capacity=capacity,
        version=1,
    )


_REQUEST = st.fixed_dictionaries(
    {"cpu": st.sampled_from(["500m", "1", "2", "3"])},
    optional={
        "gpu": st.sampled_from(["300m", "500m", 1, 2, 8]),
        "memory": st.sampled_from(["1Gi", "9Gi"]),
    },
)
_GANGS = st.lists(st.tuples(st.integers(1, 4), _REQUEST), min_size=1, max_size=6)


@given(_GANGS, st.lists(st.integers(0, 8), min_size=1, max_size=4))
def test_no_device_and_no_node_is_ever_over_committed(gangs: list[Any], gpus: list[int]) -> None:
    free = {NodeNumber(n): fit.empty(_node(n, gpus=count)) for n, count in enumerate(gpus, 1)}
    for workers, request in gangs:
        fit.place_gang(spec(workers=workers, resources=request), free)
        assert all(min(one.left.values()) >= 0 for one in free.values())
        assert all(0 <= left <= MILLI for one in free.values() for left in one.devices)


@given(_GANGS, st.lists(st.integers(0, 8), min_size=1, max_size=4))
def test_what_is_given_back_is_what_was_taken(gangs: list[Any], gpus: list[int]) -> None:
    free = {NodeNumber(n): fit.empty(_node(n, gpus=count)) for n, count in enumerate(gpus, 1)}
    before = copy.deepcopy(free)
    held = []
    for workers, request in gangs:
        gang = spec(workers=workers, resources=request)
        places = fit.place_gang(gang, free)
        held += list(zip(places or (), needs_of(gang), strict=False))
    for place, need in held:
        fit.give(free[place.node], place, need)
    assert free == before


@given(_GANGS, st.lists(st.integers(0, 8), min_size=1, max_size=4))
def test_a_gang_that_does_not_fit_takes_nothing(gangs: list[Any], gpus: list[int]) -> None:
    free = {NodeNumber(n): fit.empty(_node(n, gpus=count)) for n, count in enumerate(gpus, 1)}
    for workers, request in gangs:
        before = copy.deepcopy(free)
        if fit.place_gang(spec(workers=workers, resources=request), free) is None:
            assert free == before


def test_best_fit_keeps_the_emptier_node_whole() -> None:
    free = {NodeNumber(n): fit.empty(_node(n, cpu=cpu)) for n, cpu in ((1, 8), (2, 4))}
    places = fit.place_gang(spec(cpu="2"), free)
    assert places is not None
    assert places[0].node == 2


def test_fractions_share_the_fullest_device_that_has_room() -> None:
    free = {NodeNumber(1): fit.empty(_node(1, gpus=2))}
    for _ in range(2):
        fit.place_gang(spec(cpu="1", resources={"gpu": "500m"}), free)
    assert free[NodeNumber(1)].devices == [0, MILLI]


def test_a_request_for_another_model_does_not_fit() -> None:
    node = _node(1, gpus=8, model="a10")
    assert not fit.gang_fits_empty(spec(resources={"gpu/h100": 1}), [node])
    assert fit.gang_fits_empty(spec(resources={"gpu": 1}), [node])


def test_too_large_a_worker_is_told_what_the_nearest_node_lacks() -> None:
    nodes = [_node(1, cpu=2), _node(2, cpu=6)]
    assert fit.worker_too_large(spec(cpu="8"), nodes) == ("worker", {"cpu": 2000})
    assert fit.worker_too_large(spec(cpu="6"), nodes) is None
