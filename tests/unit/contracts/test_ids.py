"""Ids are well-formed, sortable by time and carry their cell."""

from hypothesis import given
from hypothesis import strategies as st

from ebbtide.contracts.ids import is_job_id, is_name, job_id

_RANDOM = st.binary(min_size=10, max_size=10)


@given(st.integers(0, 2**48 - 1), _RANDOM)
def test_a_new_id_is_well_formed_in_its_cell_only(millis: int, randomness: bytes) -> None:
    job = job_id("main", millis, randomness)
    assert is_job_id(job, "main")
    assert not is_job_id(job, "other")


@given(st.integers(0, 2**48 - 2), _RANDOM, _RANDOM)
def test_a_later_id_sorts_after_an_earlier_one(millis: int, one: bytes, other: bytes) -> None:
    assert job_id("main", millis, one) < job_id("main", millis + 1, other)


def test_what_is_no_id_is_refused() -> None:
    assert not is_job_id("", "main")
    assert not is_job_id("job_main_", "main")
    assert not is_job_id("job_main_" + "U" * 26, "main")
    assert not is_job_id("job_main_0" + "0" * 26, "main")


def test_names_are_short_lower_case_and_plain() -> None:
    assert is_name("a")
    assert is_name("n-1")
    assert not any(is_name(bad) for bad in ("", "-a", "a-", "A", "a.b", "a" * 64, "a\n", "ä"))
