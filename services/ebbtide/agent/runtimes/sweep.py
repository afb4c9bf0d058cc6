"""Ending what a dead sitter left behind.

A worker dies with its sitter, its children need not. They are known by their cgroup or, wherever
they went, by the worker's key in the environment they inherited; a bare process number is never
trusted.
"""

import os
import signal
from pathlib import Path

from ebbtide.agent.runtimes.sitters import send

ENVIRONMENT_MAX = 1 << 20


def sweep(mark: bytes, members: set[int]) -> int:
    """Kill ``members`` and every process whose environment holds ``mark`` (``NAME=value``).

    Gives how many there were; to be repeated until it gives 0. Blocking.
    """
    count = 0
    own = os.getuid()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if folder.stat().st_uid != own:
                continue
            count += _kill_if(int(folder.name), mark, members)
        except (ProcessLookupError, FileNotFoundError, PermissionError):
            continue
    return count


def _kill_if(pid: int, mark: bytes, members: set[int]) -> bool:
    pidfd = os.pidfd_open(pid)
    try:
        # Opened first, asked after: what is killed is what was asked about.
        if pid not in members and not _is_marked(pid, mark):
            return False
        send(pidfd, signal.SIGKILL)
        return True
    finally:
        os.close(pidfd)


def _is_marked(pid: int, mark: bytes) -> bool:
    with Path(f"/proc/{pid}/environ").open("rb") as file:
        return mark in file.read(ENVIRONMENT_MAX).split(b"\0")
