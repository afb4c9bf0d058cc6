"""Printing."""

import datetime as dt

import pytest

from ebbtide.cli import VERBS, exits, main
from ebbtide.cli.logs import Lines
from ebbtide.cli.printing import age, clean, table
from ebbtide.testing.builders import START


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ä 漢", "plain ä 漢"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"),
        ("\u202eevil", "\\u202eevil"),
        ("\u2028", "\\u2028"),
    ],
)
def test_what_moves_the_cursor_is_escaped(text: str, shown: str) -> None:
    assert clean(text) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (61, "1m 1s"),
        (3600, "1h"),
        (5400, "1h 30m"),
        (90_000, "1d 1h"),
        (-5, "0s"),
    ],
)
def test_ages_have_at_most_two_units(seconds: int, shown: str) -> None:
    assert age(START, START + dt.timedelta(seconds=seconds)) == shown


def test_a_table_for_programs_is_aligned_text(capsys: pytest.CaptureFixture[str]) -> None:
    table(("A", "B"), [("1", "x\x1b"), ("222", "y")], "none")
    assert capsys.readouterr().out == "A    B\n1    x\\x1b\n222  y\n"


def test_an_empty_table_says_so_beside_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    table(("A",), [], "no jobs")
    out = capsys.readouterr()
    assert (out.out, out.err) == ("", "no jobs\n")


def test_lines_of_a_worker_are_begun_with_its_name_once_they_are_whole() -> None:
    lines = Lines("worker-0")
    assert lines.take(b"one\ntw") == b"[worker-0] one\n"
    assert lines.take(b"o\n") == b"[worker-0] two\n"
    assert lines.take(b"rest") == b""
    assert lines.end() == b"[worker-0] rest\n"
    assert lines.end() == b""


def test_an_unknown_verb_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sbmit"]) == exits.USAGE
    assert "did you mean `ebb submit`" in capsys.readouterr().err


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == exits.OK
    listed = capsys.readouterr().out
    assert all(f"  {verb} " in listed for verb in VERBS)


def test_every_exit_code_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    codes = {value for name, value in vars(exits).items() if isinstance(value, int)}
    assert main(["help", "exit-codes"]) == exits.OK
    told = capsys.readouterr().out
    assert codes == set(exits.MEANINGS)
    assert all(str(code) in told for code in codes)


@pytest.mark.parametrize(
    "verb", ["submit", "ls", "show", "logs", "stop", "events", "node", "token"]
)
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", verb]) == exits.OK
    assert f"Usage: ebb {verb}" in capsys.readouterr().out
