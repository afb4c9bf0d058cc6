"""The process that sits beside one worker from its start until no process of it is left.

The keeper forks it without exec, so this file imports builtin modules only and touches little
memory: a node has one sitter per worker. It starts the worker so that the worker dies with it,
records raw wait status and times on disk, and enforces the node's lease; it must never need the
agent, the keeper or the network to do so. A sitter whose agent is there waits for the next worker
afterwards: a forked process that is warm costs half of a new one.

Each worker has a slot: a record of fixed size in the node's file ``lives`` and a folder with its
log and its working directory. The first half of the record is the agent's, the second half the
sitter's. A sitter holds a lock on the record while it serves it, so whoever gets that lock knows
that nobody does. It serves only if, under the lock, the agent's half still names its worker as
planned and its own half is empty; so a late sitter never starts what was buried, and nothing is
ever started twice.

- agent: ``P <key> <note>``, then at most one of ``O <unix ns>`` (ordered to end) and ``T <cause>
  <unix ns> <detail>`` (a tombstone: never started);
- sitter: ``S <sitter pid> <group>``, ``R <worker pid> <unix ns>`` (the command was executed), and
  ``E <cause> <status> <unix ns> <log bytes> <oom kills> <detail>`` (nothing of it is left; synced).

A sitter that is told to (a frame that begins with an empty field) joins a cgroup of its own once
and for all, so that its workers are born there: moving a process into a group makes the kernel wait
10 to 20 ms, which then happens before anybody needs the sitter. It never kills itself with the
group, and its worker is the first that the kernel takes when memory runs out.

The agent hears ``hello`` with a pidfd of the sitter, then per worker ``look`` (somebody else's, or
a failed start: read the record), ``fail <why>``, ``run`` and ``end``. Signals to a sitter that
serves: SIGTERM is passed to the worker's process group, SIGUSR1 kills all that is left.
"""

import ctypes
import errno
import os
import time
from _socket import MSG_NOSIGNAL, SCM_RIGHTS, SOL_SOCKET, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    # The builtin module: the other one makes enums of every number, in every sitter's memory.
    import _signal as signal

FRAME_MAX = 192 * 1024
"""A start order: a stored job has at most 48 KiB of command and environment."""
RECORD_BYTES = 1024
HALF_BYTES = 512
DETAIL_MAX = 256
LEASE_TICK_S = 1.0
"""How often a sitter looks at its lease at least: the kernel's timers stand still in suspend."""
LEASE_BYTES = 64
CHILDREN_BYTES = 65536
GUARD_FD = 99
"""Where a worker finds its guard: out of the way of scripts, which use the small numbers."""
_PR_SET_CHILD_SUBREAPER = 36
_F_SETFL, _F_SETOWN, _F_SETSIG, _O_ASYNC = 4, 8, 10, 0o20000
"""Linux's numbers; the module that names them is no builtin one everywhere."""
_OOM_FIRST = b"500"
"""Added to a worker's score: its memory is its own doing, and the node's daemons live on."""
_WAITED = frozenset((signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1))

_COMMANDS_FAULT = {
    errno.ENOENT: 127 << 8,
    errno.EACCES: 126 << 8,
    errno.ENOEXEC: 126 << 8,
    errno.ELOOP: 126 << 8,
    errno.ENAMETOOLONG: 126 << 8,
    errno.E2BIG: 126 << 8,
}
"""The status that a shell gives where the command itself cannot be executed, now or later.

All else is the node's fault, which may have no room for one process more just now.
"""

_SIGNALS = tuple(signal.valid_signals())

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
_prctl.argtypes = (ctypes.c_int,) + (ctypes.c_ulong,) * 4
_prctl.restype = ctypes.c_int
_fcntl = _libc.fcntl
_fcntl.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long)
_fcntl.restype = ctypes.c_int


class Plan:
    """What to start, as the agent wrote it; see ``runtimes/process.py`` for the writing side."""

    __slots__ = ("args", "env", "key", "lease", "log", "slot", "work")

    def __init__(self, frame: bytes) -> None:
        fields = frame.split(b"\0")
        self.key, slot, self.work, self.log, self.lease, words = fields[:6]
        self.slot = int(slot)
        self.args = fields[6 : 6 + int(words)]
        self.env = dict(entry.split(b"=", 1) for entry in fields[6 + int(words) :])


class Group:
    """The sitter's own cgroup: its number, the files that list its processes, and its kills."""

    __slots__ = ("kills", "number", "oom", "procs")

    def __init__(self, frame: bytes = b"\0-1\0") -> None:
        _, number, self.oom, *self.procs = frame.split(b"\0")
        self.number = int(number)
        for path in self.procs:
            _write(path, b"0")
        self.kills = _oom_kills(self.oom)

    def new_kills(self) -> int:
        """Give how often the kernel killed here since this was last asked."""
        before, self.kills = self.kills, _oom_kills(self.oom)
        return self.kills - before


def _write(path: bytes, text: bytes) -> None:
    """Write to a control file; where that is refused, workers run without what it would give."""
    try:
        fd = os.open(path, os.O_WRONLY)
    except OSError:
        return
    try:
        os.write(fd, text)
    except OSError:
        pass
    finally:
        os.close(fd)


def serve(door: socket, lives: int) -> None:
    """Serve one worker after the other until the agent at the other end of ``door`` is gone.

    ``lives`` is the open file of records. The caller exits the process afterwards.
    """
    os.setsid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    pid = os.getpid()
    pidfd = os.pidfd_open(pid)
    rights = [(SOL_SOCKET, SCM_RIGHTS, pidfd.to_bytes(4, "little"))]
    door.sendmsg([b"hello %d" % pid], rights, MSG_NOSIGNAL)
    os.close(pidfd)
    group, guard = Group(), _new_guard()
    while True:
        frame = door.recv(FRAME_MAX)
        if not frame:
            return
        if frame[:1] == b"\0":
            group = Group(frame)
            continue
        while signal.sigtimedwait(_WAITED, 0):
            continue  # meant for the worker before: the agent had not yet heard of its end
        if not _say(door, _sit(Plan(frame), group, guard, lives, door)):
            return


def _say(door: socket, answer: bytes) -> bool:
    """Tell the agent; False if it is gone, and its successor will read the record instead."""
    try:
        door.send(answer, MSG_NOSIGNAL)
    except OSError:
        return False
    return True


def _sit(plan: Plan, group: Group, guard: int, lives: int, door: socket) -> bytes:
    """Run one worker to its end; give what is then to be said to the agent."""
    log = -1
    os.lseek(lives, plan.slot * RECORD_BYTES, os.SEEK_SET)
    os.lockf(lives, os.F_LOCK, RECORD_BYTES)
    try:
        if not _is_planned(plan, lives):
            return b"look " + plan.key
        log = os.open(plan.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.chdir(plan.work)
        return _run(plan, group, guard, lives, door, log)
    except OSError as error:
        return b"fail %s %s" % (plan.key, _words(error))
    finally:
        if log >= 0:
            os.close(log)
        os.lseek(lives, plan.slot * RECORD_BYTES, os.SEEK_SET)
        os.lockf(lives, os.F_ULOCK, RECORD_BYTES)


def _is_planned(plan: Plan, lives: int) -> bool:
    record = os.pread(lives, RECORD_BYTES, plan.slot * RECORD_BYTES)
    first, _, second = record[:HALF_BYTES].partition(b"\n")
    fresh = second[:1] == b"\0" and record[HALF_BYTES : HALF_BYTES + 1] == b"\0"
    return fresh and first.startswith(b"P " + plan.key + b" ")


def _run(plan: Plan, group: Group, guard: int, lives: int, door: socket, log: int) -> bytes:
    at = plan.slot * RECORD_BYTES + HALF_BYTES
    story = b"S %d %d\n" % (os.getpid(), group.number)
    os.pwrite(lives, story, at)
    worker, status, failure = _start(plan, guard, log)
    cut_off = False
    if not failure:
        line = b"R %d %d\n" % (worker, time.time_ns())
        story += line
        os.pwrite(lives, story, at)
        _say(door, b"run %s %s" % (plan.key, line))
        status, cut_off = _watch(plan, group, worker)
    _kill_the_rest(group)
    if failure:
        cause = b"start_failed"
    elif cut_off:
        cause = b"lease"
    else:
        cause = b"exited" if os.WIFEXITED(status) else b"signalled"
    size, kills = os.fstat(log).st_size, group.new_kills()
    line = b"E %s %d %d %d %d %s\n" % (cause, status, time.time_ns(), size, kills, failure)
    os.pwrite(lives, story + line, at)
    os.fdatasync(lives)
    return b"end %s %s" % (plan.key, line)


def _words(error: OSError) -> bytes:
    name = error.filename
    shown = name if isinstance(name, bytes) else str(name or "start").encode()
    return (str(error.strerror).encode() + b": " + shown)[:DETAIL_MAX].replace(b"\n", b" ")


def _start(plan: Plan, guard: int, log: int) -> tuple[int, int, bytes]:
    """Execute the worker; give its pid or, when it could not be executed, a status and why.

    Along PATH as a shell does: a file that may not be executed is remembered but not the last word,
    and an empty entry is the working directory.
    """
    command = plan.args[0]
    paths = [command]
    if b"/" not in command:
        folders = plan.env.get(b"PATH", b"/usr/bin:/bin").split(b":")
        paths = [folder + b"/" + command if folder else command for folder in folders]
    refused: OSError = FileNotFoundError(2, "No such file or directory", command)
    for path in paths:
        try:
            os.stat(path)  # noqa: PTH116 - pathlib costs memory
            return _spawn(path, plan, guard, log), -1, b""
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused = error
    return 0, _COMMANDS_FAULT.get(refused.errno or 0, -1), _words(refused)


def _spawn(path: bytes, plan: Plan, guard: int, log: int) -> int:
    """Have the C library start it: a fork would copy this interpreter only to throw it away."""
    worker = os.posix_spawn(
        path,
        plan.args,
        plan.env,
        file_actions=(
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
            (os.POSIX_SPAWN_DUP2, guard, GUARD_FD),
        ),
        setpgroup=0,
        setsigmask=(),
        # What whoever started the node ignored, as nohup does the hang-up, would be handed on.
        setsigdef=_SIGNALS,
    )
    _fcntl(guard, _F_SETOWN, -worker)
    _write(b"/proc/%d/oom_score_adj" % worker, _OOM_FIRST)
    return worker


def _new_guard() -> int:
    """Make what kills a worker's process group when its sitter is gone, whoever else is left.

    The worker inherits the reading end of a pipe whose writing end only the sitter has. When that
    closes, the kernel sends the group the signal that was asked for, which cannot be refused.
    """
    guard, _ = os.pipe()
    _fcntl(guard, _F_SETSIG, signal.SIGKILL)
    _fcntl(guard, _F_SETFL, _O_ASYNC)
    return guard


def lease_left_s(path: bytes) -> float:
    """Give seconds until the deadline in the lease file; none left when it cannot be read.

    The deadline stands twice in the file, so that a half-written one is seen and read again.
    """
    for _ in range(3):
        try:
            fd = os.open(path, os.O_RDONLY)
        except OSError:
            return 0.0
        words = os.read(fd, LEASE_BYTES).split()
        os.close(fd)
        if len(words) == 2 and words[0] == words[1]:
            return int(words[0]) / 1e9 - time.clock_gettime(time.CLOCK_BOOTTIME)
    return 0.0


def _watch(plan: Plan, group: Group, worker: int) -> tuple[int, bool]:
    """Wait for the worker's end; give its raw status and whether the lease ended it."""
    cut_off = False
    while True:
        if plan.lease and not cut_off:
            left = lease_left_s(plan.lease)
            if left <= 0:
                cut_off = True
                _kill(group, worker)
                continue
            got = signal.sigtimedwait(_WAITED, min(left, LEASE_TICK_S))
        else:
            got = signal.sigwaitinfo(_WAITED)
        number = got.si_signo if got else 0
        if number == signal.SIGCHLD:
            status = _reap(worker)
            if status is not None:
                return status, cut_off
        elif number == signal.SIGTERM:
            _signal_group(worker, signal.SIGTERM)
        elif number == signal.SIGUSR1:
            _kill(group, worker)


def _reap(worker: int) -> int | None:
    """Take in whatever ended; orphans of the worker come here too. Give the worker's own status."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == worker:
            return status
        if pid == 0:
            return None


def _kill(group: Group, worker: int) -> None:
    _signal_group(worker, signal.SIGKILL)
    _kill_group(group)


def _signal_group(worker: int, number: int) -> None:
    """Signal the worker's process group; it is not reaped yet, so the number is still its own."""
    try:
        os.killpg(worker, number)
    except (ProcessLookupError, PermissionError):
        return


def _kill_group(group: Group) -> None:
    """Kill whatever is in the sitter's cgroup, but the sitter."""
    for path in group.procs:
        try:
            _kill_each(_numbers(path))
        except OSError:
            continue


def _numbers(path: bytes) -> list[bytes]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, CHILDREN_BYTES).split()
    finally:
        os.close(fd)


def _kill_each(pids: list[bytes]) -> None:
    own = os.getpid()
    for pid in pids:
        try:
            if int(pid) != own:
                os.kill(int(pid), signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _kill_the_rest(group: Group) -> None:
    """End every descendant that is left.

    As their subreaper a sitter is parent of each orphan in the end, so having no children proves
    that none is left.
    """
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
            pid = os.getpid()
            _kill_each(_numbers(b"/proc/%d/task/%d/children" % (pid, pid)))
            _kill_group(group)
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _oom_kills(path: bytes) -> int:
    """Give how often the kernel killed in the worker's memory cgroup since that was made."""
    if not path:
        return 0
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return 0
    text = os.read(fd, 1024)
    os.close(fd)
    at = text.find(b"oom_kill ")
    return int(text[at + 9 :].split(None, 1)[0]) if at >= 0 else 0
