"""What training scripts import, without a platform."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ebbtide import train
from ebbtide.train import CheckpointError


@pytest.fixture(autouse=True)
def by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("EBB_") or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("EBB_CHECKPOINTS", str(tmp_path / "checkpoints"))
    return tmp_path


def save(step: int, text: str = "weights") -> Path:
    with train.save(step) as folder:
        (folder / "model").write_text(text)
    return folder


def test_a_script_alone_is_rank_0_of_1() -> None:
    assert (train.rank(), train.world_size(), train.role()) == (0, 1, "worker")


def test_there_is_nothing_to_resume_from_at_first() -> None:
    assert train.newest() is None


def test_the_newest_committed_checkpoint_is_found() -> None:
    save(9)
    folder = save(10)
    assert train.newest() == (10, folder)


def test_a_checkpoint_that_was_never_committed_does_not_count() -> None:
    folder = save(10)
    train.folder_for(20).joinpath("model").write_text("half")
    assert train.newest() == (10, folder)


def test_a_block_that_fails_commits_nothing() -> None:
    with pytest.raises(ZeroDivisionError), train.save(10) as folder:
        (folder / "model").write_text(str(1 // 0))
    assert train.newest() is None


def test_a_damaged_checkpoint_is_named_and_not_used() -> None:
    (save(10) / "model").write_text("weighty")
    with pytest.raises(CheckpointError, match="damaged: model"):
        train.newest()


def test_a_file_that_is_gone_is_noticed() -> None:
    (save(10) / "model").unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        train.newest()


def test_an_empty_checkpoint_is_refused() -> None:
    train.folder_for(10)
    with pytest.raises(CheckpointError, match="empty"):
        train.commit(10)


def test_a_commit_may_be_repeated() -> None:
    folder = save(10)
    first = (folder / "manifest.json").read_bytes()
    train.commit(10)
    assert (folder / "manifest.json").read_bytes() == first


def test_two_lives_of_a_job_never_write_the_same_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    first = save(10)
    monkeypatch.setenv("EBB_ATTEMPT", "2")
    assert save(10) != first


def test_folders_within_a_checkpoint_are_sealed_too() -> None:
    with train.save(10) as folder:
        (folder / "shards").mkdir()
        (folder / "shards" / "0").write_text("a")
    (folder / "shards" / "0").write_text("b")
    with pytest.raises(CheckpointError, match="shards/0"):
        train.newest()


def test_under_a_platform_the_newest_is_what_the_platform_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = save(10)
    save(20)
    monkeypatch.setenv("EBB_SOCKET", "/nowhere/door.sock")
    monkeypatch.setenv("EBB_KEY", "key")
    assert train.newest() is None
    monkeypatch.setenv("EBB_RESUME_STEP", "10")
    monkeypatch.setenv("EBB_RESUME_FOLDER", folder.name)
    assert train.newest() == (10, folder)


def test_progress_without_an_agent_neither_waits_nor_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train.progress(step=1)
    monkeypatch.setenv("EBB_SOCKET", "/nowhere/door.sock")
    monkeypatch.setenv("EBB_KEY", "key")
    train.progress(step=1)


def test_an_agent_that_stays_away_fails_the_commit_within_a_bound(
    by_hand: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ebbtide.train.door.SAY_S", 0.0)
    monkeypatch.setenv("EBB_SOCKET", str(by_hand / "door.sock"))
    monkeypatch.setenv("EBB_KEY", "key")
    with pytest.raises(CheckpointError, match="does not answer"):
        save(10)


def test_importing_it_loads_the_standard_library_only() -> None:
    look = "import sys; import ebbtide.train; print(*{n.split('.')[0] for n in sys.modules})"
    command = [sys.executable, "-c", look]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert not {"msgspec", "numpy", "torch", "asyncio"} & set(done.stdout.split())
