"""Quantities are read as people write them, and refused with the path of the field."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.contracts.errors import Malformed
from ebbtide.contracts.units import parse_vector, show_quantity, show_vector


@pytest.mark.parametrize(
    ("name", "written", "amount"),
    [
        ("cpu", "500m", 500),
        ("cpu", "1.5", 1500),
        ("cpu", 4, 4000),
        ("cpu", 0.25, 250),
        ("memory", "16Gi", 16384),
        ("memory", "1", 1),
        ("memory", 1_000_000, 1),
        ("memory", "1.5Gi", 1536),
        ("gpu/h100", 8, 8000),
        ("gpu", "500m", 500),
        ("rdma", "2", 2000),
    ],
)
def test_the_usual_spellings_are_read(name: str, written: object, amount: int) -> None:
    assert parse_vector("resources", {name: written}) == {name: amount}


@pytest.mark.parametrize(
    "written",
    ["-1", -1, float("nan"), float("inf"), "nan", "1e3", "", " ", "1Q", "0", 0, True, None, [],
     "9" * 41, "99999999999999999999", "0.0001", "½", "1_000"],
)  # fmt: skip
def test_what_is_no_quantity_is_refused_with_the_path_of_the_field(written: object) -> None:
    with pytest.raises(Malformed) as refused:
        parse_vector("roles.worker.resources", {"cpu": written})
    assert refused.value.rejected.field == "roles.worker.resources.cpu"


def test_devices_are_a_fraction_of_one_or_whole() -> None:
    with pytest.raises(Malformed, match="devices"):
        parse_vector("resources", {"gpu": "1.5"})


@given(st.sampled_from(["cpu", "memory", "rdma"]), st.integers(1, 10**9))
def test_what_is_shown_of_a_quantity_is_read_back(name: str, amount: int) -> None:
    assert parse_vector("r", {name: show_quantity(name, amount)}) == {name: amount}


@pytest.mark.parametrize(
    ("name", "amount", "shown"),
    [
        ("cpu", 4000, "4"),
        ("cpu", 1500, "1.5"),
        ("cpu", 500, "500m"),
        ("cpu", 10_000_000, "10000"),
        ("cpu", 0, "0"),
        ("cpu", -250, "-250m"),
        ("cpu", -1250, "-1.25"),
        ("memory", 2048, "2Gi"),
    ],
)
def test_a_quantity_is_shown_as_people_write_it(name: str, amount: int, shown: str) -> None:
    assert show_quantity(name, amount) == shown


def test_a_vector_is_shown_in_words() -> None:
    assert show_vector({"memory": 2048, "cpu": 1500}) == "cpu 1.5, memory 2Gi"
    assert show_quantity("memory", 100) == "100Mi"
