"""Logs in the store: chunks by offset, read as one."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.chassis.job_logs import chunks, folder, read_range, stored_size, write_chunk

JOB = "job_main_01J00000000000000000000001"


def write(store: Path, offset: int, data: bytes) -> None:
    write_chunk(folder(store, JOB, 1, 0), offset, data, 1000.0)


def read(store: Path, offset: int, limit: int = 100) -> tuple[bytes, int]:
    return read_range(store, JOB, 1, 0, offset, limit)


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read(tmp_path, 0) == (b"", 0)


def test_a_range_is_read_across_chunks(tmp_path: Path) -> None:
    write(tmp_path, 0, b"hello ")
    write(tmp_path, 6, b"wide ")
    write(tmp_path, 11, b"world")
    assert read(tmp_path, 4, 9) == (b"o wide wo", 16)


def test_a_chunk_twice_is_one_chunk(tmp_path: Path) -> None:
    write(tmp_path, 0, b"hello")
    write(tmp_path, 0, b"hello")
    assert read(tmp_path, 0) == (b"hello", 5)
    assert len(chunks(folder(tmp_path, JOB, 1, 0))) == 1


def test_chunks_that_overlap_are_read_once(tmp_path: Path) -> None:
    write(tmp_path, 0, b"hello ")
    write(tmp_path, 4, b"o world")
    assert read(tmp_path, 0) == (b"hello world", 11)


def test_what_is_given_ends_at_a_gap(tmp_path: Path) -> None:
    write(tmp_path, 0, b"hello")
    write(tmp_path, 9, b"world")
    assert read(tmp_path, 0)[0] == b"hello"
    assert stored_size(folder(tmp_path, JOB, 1, 0)) == 5


def test_a_chunk_knows_when_its_last_byte_was_seen(tmp_path: Path) -> None:
    write(tmp_path, 0, b"hello")
    assert chunks(folder(tmp_path, JOB, 1, 0))[0].path.stat().st_mtime == 1000.0


def test_nothing_is_left_of_a_chunk_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder(tmp_path, JOB, 1, 0)
    (place / f"{0:016d}.zst").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        write(tmp_path, 0, b"hello")
    assert [path.name for path in place.iterdir()] == [f"{0:016d}.zst"]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5), st.integers(0, 210))
def test_any_cut_of_a_log_into_chunks_reads_the_same(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, cuts: list[int], offset: int
) -> None:
    store = tmp_path_factory.mktemp("store")
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for first, last in itertools.pairwise(edges):
        write(store, first, data[first:last])
    assert read(store, offset, 50) == (data[offset : offset + 50], len(data))
