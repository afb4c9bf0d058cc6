"""How the command ends when nobody answers, and when nobody can be answered."""

import subprocess
import sys

import pytest

from ebbtide.cli import exits

EBB = [sys.executable, "-m", "ebbtide.cli"]


def test_a_question_that_nobody_answers_changes_nothing() -> None:
    asked = subprocess.run(
        [*EBB, "node", "fence", "n1"], input="", capture_output=True, text=True, check=False
    )
    assert (asked.returncode, "Traceback" in asked.stderr) == (exits.INTERRUPTED, False)


def test_a_group_without_a_verb_shows_its_help() -> None:
    shown = subprocess.run([*EBB, "node"], capture_output=True, text=True, check=False)
    assert shown.returncode == exits.USAGE
    assert "  drain " in shown.stderr


@pytest.mark.parametrize("words", [["help"], ["version"]])
def test_output_that_cannot_be_written_is_told_in_one_line(words: list[str]) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            [*EBB, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == exits.UNAVAILABLE
    assert done.stderr.splitlines() == [
        "ebb: the output cannot be written: No space left on device"
    ]
