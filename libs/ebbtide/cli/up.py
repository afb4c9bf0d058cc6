"""``ebb up``: starts a platform on this machine and returns when it answers."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from ebbtide.cli.exits import UNAVAILABLE

MODULE = "ebbtide.allinone"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ebb up",
        description="Start a platform on this machine: its servers, every service, and agents.",
        epilog="Nodes and capacity are kept in the home; the next start need not repeat them.",
    )
    parser.add_argument("--nodes", type=int, metavar="N", help="how many nodes to play (first: 1)")
    parser.add_argument(
        "--capacity", help="what each node shall claim to have, e.g. cpu=4,memory=8Gi,gpu/h100=8"
    )
    parser.add_argument("--split", action="store_true", help="run each service in its own process")
    parser.add_argument("--home", type=Path, metavar="DIR", help="where all state is kept")
    parser.add_argument("--foreground", action="store_true", help="stay, until interrupted")
    parser.add_argument("--json", action="store_true", help="print facts for programs")
    return parser


def _command(given: argparse.Namespace) -> list[str]:
    command = [sys.executable, "-m", MODULE]
    if given.home is not None:
        command += ["--home", str(given.home.absolute())]
    if given.nodes is not None:
        command += ["--nodes", str(given.nodes)]
    if given.capacity is not None:
        command += ["--capacity", given.capacity]
    if given.split:
        command.append("--split")
    return command


def _start(command: list[str]) -> dict[str, object]:
    """Start the supervisor apart from this terminal and wait for its one line."""
    reader, writer = os.pipe()
    with subprocess.Popen(  # noqa: S603 - our own module, argument vector, no shell
        [*command, "--ready-fd", str(writer)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
        pass_fds=(writer,),
    ) as started:
        os.close(writer)
        with os.fdopen(reader) as pipe:
            line = pipe.readline()
        # It goes on without us: nothing here may wait for it.
        started.returncode = 0
    if not line:
        return {"ready": False, "error": "the supervisor ended without a word; try --foreground"}
    facts: dict[str, object] = json.loads(line)
    return facts


def _show(facts: dict[str, object]) -> None:
    nodes = "1 node" if facts["nodes"] == 1 else f"{facts['nodes']} nodes"
    what = "runs already" if facts["already"] else "is up"
    sys.stdout.write(f"Ebbtide {what} at {facts['url']}: {nodes}, home {facts['home']}\n")
    sys.stdout.write("Look around with: ebb status, ebb ls, ebb node ls. Stop it with: ebb down\n")


def main(argv: list[str]) -> int:
    """Start a platform, or say that it runs already."""
    given = _parser().parse_args(argv)
    command = _command(given)
    if given.foreground:
        sys.stdout.flush()
        os.execv(command[0], command)  # noqa: S606 - becomes the supervisor, no shell
    facts = _start(command)
    if given.json:
        sys.stdout.write(json.dumps(facts) + "\n")
    elif facts["ready"]:
        _show(facts)
    else:
        sys.stderr.write(f"ebb up: {facts['error']}\n")
    return 0 if facts["ready"] else UNAVAILABLE
