"""Ends an embedded platform: ``python -m ebbtide.allinone.down``.

First the supervisor, which ends its parts in order; then whatever a killed supervisor left; last
the workers, through their sitters, with their cgroups, unless they shall go on. Agents are gone by
then, so an end is found and reported when the platform comes back. Writes one line of JSON about
what it did.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from ebbtide.agent import cgroups
from ebbtide.agent.lives import Lives
from ebbtide.allinone.child import Handle, end, read_identity
from ebbtide.allinone.home import Home, default_home

SUPERVISOR_STOP_S = 90.0
PART_STOP_S = 10.0
WORKER_GRACE_S = 10.0
KILL_S = 10.0
LIVES = "lives"


def _open(path: Path) -> Handle | None:
    identity = read_identity(path)
    if identity is None:
        return None
    try:
        return Handle(identity)
    except ProcessLookupError:
        return None


def _finish(path: Path, stop_s: float) -> bool:
    """End the process that a pid file names; say whether there was one."""
    handle = _open(path)
    if handle is not None:
        end(handle, signal.SIGTERM, stop_s)
        handle.close()
    path.unlink(missing_ok=True)
    return handle is not None


def _sitting(home: Home, *, ending: bool) -> list[Handle]:
    """Hold the sitters of all running workers; with ``ending`` note that these are ordered to end.

    Each holds a lock on its record while it lives, and the kernel says who holds a lock: no
    pid on disk needs to be believed. An ordered end explains nothing and uses no restart: the job
    goes on when the platform comes back.
    """
    handles: list[Handle] = []
    for path in home.nodes.glob(f"*/{LIVES}"):
        lives = Lives(path)
        try:
            for life in lives.found():
                handle = _sitter_of(lives, life.slot)
                if handle is not None:
                    handles.append(handle)
                    if ending:
                        lives.note_order(life.slot, time.time_ns())
        finally:
            lives.close()
    return handles


def _sitter_of(lives: Lives, slot: int) -> Handle | None:
    pid = lives.holder(slot)
    if not pid:
        return None
    try:
        handle = Handle.of(pid)
    except ProcessLookupError:
        return None
    # Asked again now that it is held: the number might have changed hands before.
    if lives.holder(slot) == pid:
        return handle
    handle.close()
    return None


def end_workers(home: Home, grace_s: float) -> tuple[int, int]:
    """Ask every worker to end, kill the rest after ``grace_s``; give how many of each."""
    handles = _sitting(home, ending=True)
    for handle in handles:
        if grace_s > 0:
            handle.send(signal.SIGTERM)
        handle.send(signal.SIGCONT)  # a worker may have frozen its sitter
    deadline = time.monotonic() + grace_s
    stubborn = [h for h in handles if not h.wait(max(0.0, deadline - time.monotonic()))]
    for handle in stubborn:
        # A sitter then kills all that is left of its worker, and notes how it ended.
        handle.send(signal.SIGUSR1)
    deadline = time.monotonic() + KILL_S
    for handle in stubborn:
        handle.wait(max(0.0, deadline - time.monotonic()))
    for handle in handles:
        handle.close()
    return len(handles) - len(stubborn), len(stubborn)


def down(home: Home, *, keep_workers: bool, grace_s: float) -> dict[str, object]:
    """End the platform of ``home``; say what was found and done. Harmless when it is down."""
    if not home.run.is_dir():
        return {"home": str(home.folder), "running": False, "ended": [], "workers_kept": 0}
    running = _finish(home.pid_file("supervisor"), SUPERVISOR_STOP_S)
    # Agents before keepers before the rest: an agent must not report what we do to the others.
    paths = sorted(home.run.glob("*.pid"), key=lambda path: path.stem)
    ended = [path.stem for path in paths if _finish(path, PART_STOP_S)]
    facts: dict[str, object] = {"home": str(home.folder), "running": running, "ended": ended}
    if keep_workers:
        handles = _sitting(home, ending=False)
        facts["workers_kept"] = len(handles)
        for handle in handles:
            handle.close()
        return facts
    asked, killed = end_workers(home, grace_s)
    for state in home.nodes.glob("*"):
        cgroups.remove(state)
    return {**facts, "workers_ended": asked, "workers_killed": killed}


def main(argv: list[str]) -> int:
    """End a platform and write what was done."""
    parser = argparse.ArgumentParser(prog="ebbtide.allinone.down", description="End a platform.")
    parser.add_argument("--home", type=Path, help="folder of all state (EBB_HOME)")
    parser.add_argument("--keep-workers", action="store_true", help="let running workers go on")
    parser.add_argument("--grace-s", type=float, default=WORKER_GRACE_S, help="before SIGKILL")
    given = parser.parse_args(argv)
    home = Home(given.home.absolute() if given.home else default_home(os.environ))
    facts = down(home, keep_workers=given.keep_workers, grace_s=given.grace_s)
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
