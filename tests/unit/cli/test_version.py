"""``ebb version`` tells the release, and stays fast by importing next to nothing."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from ebbtide.cli import version as verb

SLOW_TO_IMPORT = {"argparse", "asyncio", "click", "http.client", "json", "msgspec", "re", "rich"}


def test_the_installed_release_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert verb.main([]) == 0
    assert capsys.readouterr().out == f"ebbtide {version('ebbtide')}\n"


def test_an_argument_that_means_nothing_is_refused() -> None:
    assert verb.main(["--nonsense"]) == 2


def test_nothing_slow_is_imported() -> None:
    program = "import sys, ebbtide.cli as c; c.main(['version']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert not SLOW_TO_IMPORT & set(done.stdout.split())
