"""Removing what a worker left, also where it took rights away from itself."""

import os
from pathlib import Path

import pytest

from ebbtide.agent.runtimes.slots import wipe

NOBODY = 65_534


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_folder_without_rights_is_removed_by_its_owner(tmp_path: Path) -> None:
    """In a child that is nobody, for rights mean nothing to root."""
    inner = tmp_path / "slot" / "work" / "deep"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    for path in (inner, inner.parent, inner.parent.parent):
        path.chmod(0)
    for path in (tmp_path, inner.parent.parent, inner.parent, inner, inner / "file"):
        os.chown(path, NOBODY, NOBODY)
    child = os.fork()
    if child == 0:
        try:
            os.chdir(tmp_path)
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            wipe(Path("slot"))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert not (tmp_path / "slot").exists()


def test_a_link_in_place_of_a_folder_is_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other" / "kept").mkdir(parents=True)
    (tmp_path / "slot").symlink_to(tmp_path / "other")
    wipe(tmp_path / "slot")
    assert not (tmp_path / "slot").is_symlink()
    assert (tmp_path / "other" / "kept").exists()
