"""``ebb down``: ends the platform on this machine, and what it runs unless told otherwise."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from ebbtide.cli.exits import UNAVAILABLE

MODULE = "ebbtide.allinone.down"


def _count(number: object, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _show(facts: dict[str, object]) -> None:
    ended = facts["ended"]
    stopped = bool(facts["running"]) or bool(ended)
    said = [f"Ebbtide was {'stopped' if stopped else 'not running'}, home {facts['home']}"]
    if facts.get("workers_kept"):
        said.append(f"{_count(facts['workers_kept'], 'worker')} left running")
    if facts.get("workers_ended"):
        said.append(f"{_count(facts['workers_ended'], 'worker')} ended when asked")
    if facts.get("workers_killed"):
        said.append(f"{_count(facts['workers_killed'], 'worker')} killed after the grace time")
    sys.stdout.write("; ".join(said) + "\n")


def main(argv: list[str]) -> int:
    """End the platform; harmless when it is down."""
    parser = argparse.ArgumentParser(
        prog="ebb down",
        description="End the platform on this machine. Nothing is lost: ebb up goes on from there.",
    )
    parser.add_argument("--home", type=Path, metavar="DIR", help="where all state is kept")
    parser.add_argument(
        "--keep-workers", action="store_true", help="let running workers go on for the next ebb up"
    )
    parser.add_argument(
        "--grace-s", type=float, default=10.0, help="seconds for workers to end by themselves (10)"
    )
    parser.add_argument(
        "--force", action="store_true", help="kill workers at once, without asking first"
    )
    parser.add_argument("--json", action="store_true", help="print facts for programs")
    given = parser.parse_args(argv)
    grace_s = 0.0 if given.force else given.grace_s
    command = [sys.executable, "-m", MODULE, "--grace-s", str(grace_s)]
    if given.home is not None:
        command += ["--home", str(given.home.absolute())]
    if given.keep_workers:
        command.append("--keep-workers")
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)  # noqa: S603
    if done.returncode != 0 or not done.stdout:
        sys.stderr.write("ebb down: could not end the platform; run it again\n")
        return UNAVAILABLE
    if given.json:
        sys.stdout.write(done.stdout)
    else:
        _show(json.loads(done.stdout))
    return 0
