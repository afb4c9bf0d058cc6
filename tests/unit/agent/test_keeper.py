"""What every sitter holds in memory must stay small: the keeper imports builtin modules only."""

import subprocess
import sys
from pathlib import Path

import ebbtide.agent

KEEPER = Path(ebbtide.agent.__file__).with_name("keeper.py")


def test_the_keeper_loads_neither_this_package_nor_any_library() -> None:
    look = (
        "import runpy, sys; sys.argv = ['keeper']\n"
        f"sys.path.insert(0, {str(KEEPER.parent)!r})\n"
        "import sitter\nprint(*sorted(sys.modules))"
    )
    command = [sys.executable, "-S", "-E", "-s", "-c", look]
    names = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    heavy = {"msgspec", "asyncio", "ebbtide", "socket", "signal", "enum", "logging", "json"}
    assert not heavy & set(names)


def test_a_keeper_without_a_state_folder_says_what_is_missing() -> None:
    command = [sys.executable, "-m", "ebbtide.agent.keeper"]
    done = subprocess.run(command, env={}, capture_output=True, timeout=20, check=False)
    assert (done.returncode, b"EBB_AGENT_STATE" in done.stderr) == (64, True)
