"""How a sitter counts the kernel's kills in its group."""

from pathlib import Path

import pytest

from ebbtide.agent.sitter import Group


def group(oom: Path) -> Group:
    return Group(f"\0{7}\0{oom}".encode())


@pytest.mark.parametrize(
    "text", ["oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "oom 9\noom_kill 3\n"]
)
def test_only_kills_since_the_last_worker_count_on_both_versions(tmp_path: Path, text: str) -> None:
    file = tmp_path / "oom"
    file.write_text(text)
    mine = group(file)
    file.write_text(text.replace("oom_kill 3", "oom_kill 5"))
    assert (mine.new_kills(), mine.new_kills()) == (2, 0)


def test_kills_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    assert group(tmp_path / "none").new_kills() == 0
