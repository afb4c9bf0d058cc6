"""Runs all checks and tests in order and adds them up: ``make test`` and its relatives.

Each stage has a budget of time. One that takes longer is told, for a busy machine is no reason to
fail; one that takes twice as long is ended and has failed. Skipped tests are listed by reason, and
with ``CI=true`` only the reasons in allowed_skips.txt are accepted. The last line is always the
sum, and the exit status never says better than it.
"""

import argparse
import collections
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parent
CLONE = TESTS.parent
PROGRAMS = Path(sys.executable).parent
NO_TESTS = 5
INTERRUPT_S = 30.0
PATIENCE = 2
"""A stage is ended after so many times its budget."""


class Stage(NamedTuple):
    """Tests that run together; ``parallel`` ones never share a server, a port or a folder."""

    name: str
    folders: tuple[str, ...]
    budget_s: float
    parallel: bool = False


class Sum(NamedTuple):
    """What came of a stage, with the reasons of its skips."""

    passed: int = 0
    failed: int = 0
    skipped: tuple[str, ...] = ()

    def plus(self, other: "Sum") -> "Sum":
        """Add up."""
        return Sum(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )


CHECKS: tuple[tuple[str, ...], ...] = (
    ("ruff", "format", "--check", "--quiet", "."),
    ("ruff", "check", "--quiet", "."),
    ("mypy", "libs", "services", "tests", "examples", "deploy"),
    ("lint-imports", "--no-logo"),
    ("vulture",),
    ("deptry", "libs", "services"),
    ("codespell", "--toml", "pyproject.toml"),
)
CHECK_BUDGET_S = 60.0
STAGES = (
    Stage("quick", ("unit", "contracts", "integration", "tidy"), 240.0, parallel=True),
    Stage("stories", ("scenario", "simulation"), 240.0, parallel=True),
    Stage("e2e", ("e2e",), 480.0),
)
FRAMEWORKS = Stage("frameworks", ("frameworks",), 180.0)
LONG_BUDGET_S = 4 * 3600.0


def tell_time(name: str, taken_s: float, budget_s: float) -> None:
    """Say how long a stage took."""
    over = "  (OVER ITS BUDGET)" if taken_s > budget_s else ""
    print(f"{name}: {taken_s:.0f} s of {budget_s:.0f} s{over}", flush=True)


def run(command: Sequence[str | Path], limit_s: float) -> int | None:
    """Run a program in a session of its own; None when it had to be ended."""
    started = subprocess.Popen([str(word) for word in command], cwd=CLONE, start_new_session=True)
    try:
        return started.wait(limit_s)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as reason:
        # Asked first, so that fixtures can end the servers they started.
        os.killpg(started.pid, signal.SIGINT)
        try:
            started.wait(INTERRUPT_S)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
        if isinstance(reason, KeyboardInterrupt):
            raise
        return None


def check() -> Sum:
    """Run every checker; each counts as one test."""
    total = Sum()
    all_begun = time.monotonic()
    for command in CHECKS:
        begun = time.monotonic()
        code = run([PROGRAMS / command[0], *command[1:]], PATIENCE * CHECK_BUDGET_S)
        verdict = "ok" if code == 0 else "FAILED"
        print(f"check {command[0]:<12} {verdict:<6} {time.monotonic() - begun:6.1f} s", flush=True)
        total = total.plus(Sum(passed=1) if code == 0 else Sum(failed=1))
    tell_time("check", time.monotonic() - all_begun, CHECK_BUDGET_S)
    return total


def read_report(path: Path) -> Sum:
    """Add up a report in JUnit's format."""
    passed = failed = 0
    reasons: list[str] = []
    for case in ET.parse(path).getroot().iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif skip is not None and skip.get("type") != "pytest.xfail":
            reasons.append((skip.get("message") or "").strip())
        else:
            passed += 1
    return Sum(passed, failed, tuple(reasons))


def run_stage(stage: Stage, options: Sequence[str]) -> Sum:
    """Run the tests of a stage."""
    folders = [f"tests/{name}" for name in stage.folders if any((TESTS / name).rglob("test_*.py"))]
    if not folders:
        return Sum()
    print(f"── {stage.name}: {' '.join(folders)}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ebbtide-", ignore_cleanup_errors=True) as folder:
        report = Path(folder) / "report.xml"
        # The folders of tests go with ours: a run leaves nothing behind.
        command = [sys.executable, "-m", "pytest", "--quiet", f"--junit-xml={report}", *options]
        command.append(f"--basetemp={folder}/tests")
        if stage.parallel:
            command += ["-n", "auto"]
        code = run([*command, *folders], PATIENCE * stage.budget_s)
        total = read_report(report) if report.exists() else Sum()
    tell_time(stage.name, time.monotonic() - begun, stage.budget_s)
    # A run that broke off counts as a failure, whatever it had passed until then.
    broke = code not in (0, 1, NO_TESTS) or (code == 1 and total.failed == 0)
    return total.plus(Sum(failed=1)) if broke else total


def allowed_reasons() -> list[str]:
    """Read the reasons for which a test may be skipped everywhere."""
    lines = (TESTS / "allowed_skips.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def is_allowed(reason: str, allowed: Sequence[str]) -> bool:
    """Say whether a reason is in the list."""
    return any(
        reason.startswith(entry[:-1]) if entry.endswith("*") else reason == entry
        for entry in allowed
    )


def judge_skips(total: Sum, *, strict: bool) -> Sum:
    """List skips by reason; where we are strict, those without a good one are failures."""
    counts = collections.Counter(total.skipped)
    allowed = allowed_reasons()
    for reason, count in counts.most_common():
        bad = strict and not is_allowed(reason, allowed)
        print(f"skipped {count}: {reason}{'  (NOT ALLOWED)' if bad else ''}")
    bad_count = sum(n for reason, n in counts.items() if not is_allowed(reason, allowed))
    return total.plus(Sum(failed=bad_count)) if strict else total


def stages_for(*, again: bool, long: bool) -> tuple[Stage, ...]:
    """Give the stages to run: all of them, without frameworks, or all without hurry."""
    stages = STAGES if again else (*STAGES, FRAMEWORKS)
    return tuple(one._replace(budget_s=LONG_BUDGET_S) for one in stages) if long else stages


def main(argv: Sequence[str]) -> int:
    """Run what was asked for; 0 only when nothing failed and something passed."""
    parser = argparse.ArgumentParser(prog="suite", description="Run the checks and the tests.")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--check", action="store_true", help="only the checkers")
    only.add_argument("--again", action="store_true", help="no checkers and no frameworks")
    only.add_argument("--long", action="store_true", help="only the tests marked long")
    given = parser.parse_args(argv)
    # A test must not depend on byte code being there, nor pay for it each time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Shells have what they start in the background ignore this one; tests interrupt programs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    begun = time.monotonic()
    total = Sum() if given.again or given.long else check()
    if not given.check:
        options = ["-m", "long" if given.long else "not long"]
        for stage in stages_for(again=given.again, long=given.long):
            total = total.plus(run_stage(stage, options))
    total = judge_skips(total, strict=os.environ.get("CI", "").lower() in ("1", "true"))
    print(f"time: {time.monotonic() - begun:.0f} s")
    print(
        f"tests: {total.passed} passed, {total.failed} failed, {len(total.skipped)} skipped",
        flush=True,
    )
    return 0 if total.failed == 0 and (total.passed or given.long) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
