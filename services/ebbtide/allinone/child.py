"""Programs that we start: how they are launched, told apart from strangers, ended and waited for.

Standard library only and as little of it as possible, because the process that uses this stays in
memory for as long as the platform runs. It must never signal a bare number: a process is a pid
together with its start time and the boot it belongs to, since the kernel gives numbers away again.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

PR_SET_PDEATHSIG = 1
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Account(NamedTuple):
    """A system user that a child runs as."""

    name: str
    uid: int
    gid: int


class Child(NamedTuple):
    """A program to start. With ``bound`` it dies with us, also when we are killed.

    ``stop_s`` is how long it may take to end after ``stop_signal`` before it is killed.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path
    account: Account | None = None
    bound: bool = True
    stop_signal: int = signal.SIGTERM
    stop_s: float = 10.0


class Identity(NamedTuple):
    """A process that cannot be mistaken for another that got its number later."""

    pid: int
    start: int
    boot: str


def die_with_parent(parent: int) -> None:
    """Have the calling process killed when ``parent``, who forked it, ends."""
    _prctl()(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _prctl() -> Callable[[int, int], int]:
    """Load prctl before the fork: a child before its exec must not import or allocate much."""
    function: Callable[[int, int], int] = ctypes.CDLL(None, use_errno=True).prctl
    return function


def _entry(child: Child) -> Callable[[], None]:
    """Build what runs in the new process before the program.

    The trap: a change of user clears the parent-death signal, so it is asked for last; and a parent
    that died before the request is noticed only by asking who the parent is now.
    """
    prctl = _prctl()
    parent = os.getpid()
    account = child.account
    bound = child.bound

    def enter() -> None:
        if account is not None:
            os.setgroups([])
            os.setgid(account.gid)
            os.setuid(account.uid)
        if bound:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

    return enter


def launch(child: Child, pass_fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Start ``child`` in a session of its own, its output appended to its log.

    A session of its own keeps the terminal's Ctrl-C and hang-up away from it: we alone end it. Must
    be called from a thread that lives as long as the child should, because the parent-death signal
    is sent when that *thread* ends.
    """
    descriptor = os.open(child.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(  # noqa: S603 - our own programs, argument vectors, no shell
            child.argv,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env=dict(child.env),
            cwd="/",
            start_new_session=True,
            pass_fds=tuple(pass_fds),
            preexec_fn=_entry(child),  # noqa: PLW1509 - one thread here; only so is it bound
        )
    finally:
        os.close(descriptor)


def python(module: str, *arguments: str) -> tuple[str, ...]:
    """Give the argument vector that runs one of our modules with this interpreter."""
    return (sys.executable, "-m", module, *arguments)


def boot_id() -> str:
    """Name the present boot of this machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """Give when a live process was started, in ticks since boot; None for none and for a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in brackets may hold spaces and brackets: count from the last closing one.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in ("Z", "X"):
        return None
    return int(fields[19])


def identify(pid: int) -> Identity | None:
    """Give the identity of a live process."""
    start = start_time(pid)
    return None if start is None else Identity(pid, start, boot_id())


def write_identity(path: Path, identity: Identity) -> None:
    """Keep an identity in a pid file, replaced as a whole."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(identity._asdict()))
    temporary.replace(path)


def read_identity(path: Path) -> Identity | None:
    """Give the process that a pid file names if it still lives; None otherwise."""
    try:
        found = Identity(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    if found.boot != boot_id() or start_time(found.pid) != found.start:
        return None
    return found


class Handle:
    """A live process held by a descriptor: it can be signalled and awaited without a race."""

    def __init__(self, identity: Identity) -> None:
        """Open the process.

        Raises:
            ProcessLookupError: it is gone, or its number belongs to another process by now.
        """
        self.identity = identity
        self.fd = os.pidfd_open(identity.pid)
        if start_time(identity.pid) != identity.start:
            os.close(self.fd)
            raise ProcessLookupError(identity.pid)

    @classmethod
    def of(cls, pid: int) -> "Handle":
        """Hold the process that has the number ``pid`` now.

        Raises:
            ProcessLookupError: there is none, or it has ended already.
        """
        identity = identify(pid)
        if identity is None:
            raise ProcessLookupError(pid)
        return cls(identity)

    def send(self, number: int) -> None:
        """Send a signal; nothing happens when the process has ended."""
        try:
            signal.pidfd_send_signal(self.fd, number)
        except ProcessLookupError:
            return

    def wait(self, timeout_s: float) -> bool:
        """Wait until the process has ended, at most so long; say whether it has."""
        poller = select.poll()
        poller.register(self.fd, select.POLLIN)
        return bool(poller.poll(timeout_s * 1000))

    def close(self) -> None:
        """Let go of the descriptor; the process is not touched."""
        os.close(self.fd)


def end(handle: Handle, stop_signal: int, stop_s: float) -> bool:
    """Ask a process to end, kill it after ``stop_s``; say whether it went by itself."""
    handle.send(stop_signal)
    if handle.wait(stop_s):
        return True
    handle.send(signal.SIGKILL)
    handle.wait(stop_s)
    return False
