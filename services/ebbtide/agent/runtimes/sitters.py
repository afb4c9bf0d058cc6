"""The agent's ends of its connections to sitters: one connection is one sitter.

A connection to the keeper's socket becomes a sitter, which serves one worker after the other. Idle
ones are kept for the next start, few when nothing happens and more under load; each has a cgroup of
its own, which it joins as soon as it is there. When a connection breaks, its sitter is dead; when
the agent dies, its sitters go on and leave after their worker's end.
"""

import asyncio
import itertools
import os
import signal
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from ebbtide.agent import cgroups
from ebbtide.agent.keeper import NAME

SPARE = 1
"""Idle sitters kept at rest: a start need not wait for a fork, for about a MiB."""
IDLE_MAX = 16
"""Idle sitters kept under load; what is above :data:`SPARE` is let go every :data:`IDLE_S`."""
IDLE_S = 10.0
ANSWER_MAX = 4096
RIGHTS_BYTES = 64
PIDFD_SIZE = 4


class Sitter:
    """One connection. ``serves`` names its worker; ``pidfd`` is there from its hello on.

    ``group`` is the number of its cgroup.
    """

    def __init__(self, line: socket.socket, hear: "Callable[[Sitter, str, str], None]") -> None:
        self._line = line
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self.pidfd = -1
        self.serves = ""
        self.group = -1
        self._loop.add_reader(line.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            answer, rights, _, _ = self._line.recvmsg(ANSWER_MAX, RIGHTS_BYTES)
        except BlockingIOError:
            return
        except OSError:
            answer, rights = b"", []
        for level, kind, data in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self.pidfd = int.from_bytes(data[:PIDFD_SIZE], "little")
        if not answer:
            self.close()
            self._hear(self, "gone", "")
            return
        word, _, rest = answer.decode(errors="replace").partition(" ")
        self._hear(self, word, rest)

    def send(self, frame: bytes) -> bool:
        """Order a start; False if the sitter is gone."""
        try:
            self._line.send(frame, socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def signal(self, number: int) -> None:
        """Signal the sitter itself, never a process that got its number."""
        send(self.pidfd, number)

    def close(self) -> None:
        """Let the sitter go: an idle one exits, one that serves goes on to its worker's end."""
        if self._line.fileno() >= 0:
            self._loop.remove_reader(self._line.fileno())
            self._line.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def send(pidfd: int, number: int) -> None:
    """Send a signal by pidfd; nothing happens if the process is gone."""
    if pidfd < 0:
        return
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return


class Sitters:
    """The idle ones and the way to new ones."""

    def __init__(
        self, state: Path, groups: cgroups.Groups, hear: Callable[[Sitter, str, str], None]
    ) -> None:
        self._groups = groups
        self._taken: set[int] = set()
        self._folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._hear = hear
        self._idle: list[Sitter] = []
        self._all: set[Sitter] = set()
        self._thinning: asyncio.TimerHandle | None = None

    def reserve(self, groups: Iterable[int]) -> None:
        """Keep the groups of a former agent's sitters, which still serve, from new ones."""
        self._taken.update(groups)

    def take(self, limits: cgroups.Limits) -> Sitter | None:
        """Give a sitter that has nothing to do, a warm one if there is any, with these limits.

        None while the keeper is away.
        """
        sitter = self._idle.pop() if self._idle else self._connect()
        if sitter is not None:
            self._groups.limit(sitter.group, limits)
        return sitter

    def spare(self) -> None:
        """Have one ready for the next start."""
        if len(self._idle) < SPARE:
            sitter = self._connect()
            if sitter:
                self._idle.append(sitter)

    def _connect(self) -> Sitter | None:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            # By way of the folder's descriptor: a socket's path may have 107 bytes, a state
            # folder's more.
            line.connect(f"/proc/self/fd/{self._folder}/{NAME}")
        except OSError:
            line.close()
            return None
        sitter = Sitter(line, self._heard)
        self._all.add(sitter)
        self._join(sitter)
        return sitter

    def _join(self, sitter: Sitter) -> None:
        """Have a new sitter join a group of its own, before it is needed."""
        sitter.group = next(number for number in itertools.count() if number not in self._taken)
        self._taken.add(sitter.group)
        group = self._groups.known(sitter.group)
        sitter.send("\0".join(("", str(sitter.group), group.oom, *group.procs)).encode())

    def _heard(self, sitter: Sitter, word: str, rest: str) -> None:
        if word == "gone":
            self._all.discard(sitter)
            if not sitter.serves:
                self.release(sitter.group)
            if sitter in self._idle:
                self._idle.remove(sitter)
        self._hear(sitter, word, rest)

    def give_back(self, sitter: Sitter) -> None:
        """Keep a sitter that has done its work for the next one."""
        sitter.serves = ""
        if len(self._idle) >= IDLE_MAX:
            self._let_go(sitter)
            return
        self._idle.append(sitter)
        if self._thinning is None and len(self._idle) > SPARE:
            self._thinning = asyncio.get_running_loop().call_later(IDLE_S, self._thin)

    def _let_go(self, sitter: Sitter) -> None:
        self._all.discard(sitter)
        self.release(sitter.group)
        sitter.close()

    def release(self, group: int) -> None:
        """Let a new sitter have the group, unless one of ours is still in it.

        Where a sitter died beside its worker, only once nothing of that is left: whoever ends it
        ends all that is in the group.
        """
        if all(sitter.group != group for sitter in self._all):
            self._taken.discard(group)

    def _thin(self) -> None:
        """Let go of half of what is too much, and look again later while there is more."""
        self._thinning = None
        for _ in range((len(self._idle) - SPARE + 1) // 2):
            self._let_go(self._idle.pop(0))
        if len(self._idle) > SPARE:
            self._thinning = asyncio.get_running_loop().call_later(IDLE_S, self._thin)

    def close(self) -> None:
        """Close every connection; workers go on."""
        if self._thinning:
            self._thinning.cancel()
        for sitter in self._all:
            sitter.close()
        self._all.clear()
        self._idle.clear()
        os.close(self._folder)
