"""Words of sealed checkpoints: what was half written is no word, and takes no word's room."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebbtide.agent import checkpoints
from ebbtide.agent.checkpoints import Checkpoints
from ebbtide.agent.doors import Said
from ebbtide.agent.model import WorkerKey
from ebbtide.testing.builders import job_name
from ebbtide.testing.bus import MemoryServer

KEY = WorkerKey(job=str(job_name(1)), epoch=1, attempt=1, round=1, worker=0)


def _opened(folder: Path) -> Checkpoints:
    return Checkpoints(folder, MemoryServer().connect("agent"), "checkpoint")


def _sealed(step: int) -> Said:
    return Said(key="", say="commit", step=step, folder=f"step-{step}", digest="d", bytes=1)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@contextmanager
def _full_disk() -> Iterator[None]:
    """Let no file of this process grow beyond a few bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_what_a_crash_left_half_written_is_removed_at_the_start(tmp_path: Path) -> None:
    (tmp_path / ".half").write_bytes(b"{")
    _opened(tmp_path)
    assert _names(tmp_path) == []


async def test_what_a_crash_left_half_written_takes_no_words_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "PENDING_MAX", 1)
    (tmp_path / ".half").write_bytes(b"{")
    kept = _opened(tmp_path)
    assert await kept.take(KEY, _sealed(1)) == ""
    assert await kept.take(KEY, _sealed(2)) == "too many checkpoints wait to be committed"


async def test_a_word_that_could_not_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    kept = _opened(tmp_path)
    with _full_disk(), pytest.raises(OSError, match="File too large"):
        await kept.take(KEY, _sealed(1))
    assert _names(tmp_path) == []
    assert await kept.take(KEY, _sealed(1)) == ""
