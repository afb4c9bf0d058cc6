"""The agent's side of the file ``lives``: one record per slot, shared with the sitters.

What it holds, and who may write which half, is told in ``sitter.py``. The file is written in place
and never grows while workers run, so that syncing an end costs no change of metadata; and slots
are used again rather than files made and deleted, because ext4 keeps the numbers of deleted files
back for minutes and searches past all of them on every creation.
"""

import errno
import fcntl
import os
import struct
from pathlib import Path

import msgspec

from ebbtide.agent.sitter import HALF_BYTES, RECORD_BYTES
from ebbtide.contracts.errors import InvariantBroken
from ebbtide.contracts.outcomes import EndCause

GROW_BY = 64
"""Slots added at a time: one write and one sync."""
SLOTS_MAX = 8192
TOMB_DETAIL_MAX = 120
_FLOCK = struct.Struct("hhqqi4x")


class WorkerKey(msgspec.Struct, frozen=True, order=True):
    """Who a worker is, everywhere and for good: its job's attempt and round, and its rank."""

    job: str
    epoch: int
    attempt: int
    round: int
    worker: int

    def __str__(self) -> str:
        return f"{self.job}.{self.epoch}.{self.attempt}.{self.round}.{self.worker}"

    @property
    def fence(self) -> tuple[int, int, int]:
        """What a later life of the same job has more of."""
        return (self.epoch, self.attempt, self.round)


def parse_key(text: str) -> WorkerKey:
    """Read what ``str(key)`` wrote."""
    job, *numbers = text.rsplit(".", 4)
    epoch, attempt, round_, worker = map(int, numbers)
    return WorkerKey(job, epoch, attempt, round_, worker)


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the agent must know of a worker after its own restart.

    ``stop``: it ends with the lease. ``port`` is held for its rendezvous. ``kills`` is its
    cgroup's counter before it started.
    """

    stop: bool = False
    port: int = 0
    kills: int = 0


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The end as it stands in a record; ``kills`` is the cgroup's counter after."""

    cause: EndCause
    status: int | None
    at_ns: int
    log_bytes: int = 0
    kills: int = 0
    detail: str = ""


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One record: a worker was planned, perhaps taken charge of, started and ended."""

    slot: int
    key: WorkerKey
    note: Note
    ordered: bool = False
    sitter: int = 0
    pid: int = 0
    started_ns: int = 0
    end: End | None = None


def parse(slot: int, record: bytes) -> Life | None:
    """Read one record; None if the slot is free or was cut short while being planned."""
    agents, sitters = record[:HALF_BYTES], record[HALF_BYTES:RECORD_BYTES]
    lines = [line for half in (agents, sitters) for line in half.partition(b"\0")[0].split(b"\n")]
    if not lines[0].startswith(b"P "):
        return None
    _, key, note = lines[0].split(b" ", 2)
    life = Life(slot=slot, key=parse_key(key.decode()), note=msgspec.json.decode(note, type=Note))
    for line in lines[1:]:
        life = _with(life, line)
    return life


def _with(life: Life, line: bytes) -> Life:
    words = line.decode(errors="replace").split(" ")
    match words[0]:
        case "O":
            return msgspec.structs.replace(life, ordered=True)
        case "S":
            return msgspec.structs.replace(life, sitter=int(words[1]))
        case "R":
            return msgspec.structs.replace(life, pid=int(words[1]), started_ns=int(words[2]))
        case "T" | "E":
            return msgspec.structs.replace(life, end=parse_end(words))
        case _:
            return life


def parse_end(words: list[str]) -> End:
    """Read the words of an ``E`` or ``T`` line."""
    cause = EndCause(words[1])
    if words[0] == "T":
        return End(cause=cause, status=None, at_ns=int(words[2]), detail=" ".join(words[3:]))
    status = int(words[2])
    return End(
        cause=cause,
        status=status if status >= 0 else None,
        at_ns=int(words[3]),
        log_bytes=int(words[4]),
        kills=int(words[5]),
        detail=" ".join(words[6:]),
    )


class Lives:
    """The open file.

    Nothing else in this process may open it: closing that would drop the locks held here.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size // RECORD_BYTES
        self._lives: dict[int, Life] = {}
        for slot in range(self._size):
            life = self.read(slot)
            if life is not None:
                self._lives[slot] = life
        self._free = sorted(set(range(self._size)) - self._lives.keys(), reverse=True)

    def found(self) -> list[Life]:
        """Give what the file held when it was opened."""
        return list(self._lives.values())

    def plan(self, key: WorkerKey, note: Note, slot: int) -> None:
        """Name the worker that ``slot`` is for; from here on a sitter may take charge of it."""
        line = b"P %s %s\n" % (str(key).encode(), msgspec.json.encode(note))
        if len(line) + TOMB_DETAIL_MAX + 64 > HALF_BYTES:
            raise InvariantBroken(f"the name of worker {key} does not fit its record")
        os.pwrite(self._fd, line.ljust(RECORD_BYTES, b"\0"), slot * RECORD_BYTES)

    def take(self) -> int:
        """Give a free slot."""
        if not self._free:
            self._grow()
        return self._free.pop()

    def _grow(self) -> None:
        if self._size >= SLOTS_MAX:
            raise InvariantBroken(f"more than {SLOTS_MAX} workers on one node")
        os.pwrite(self._fd, bytes(GROW_BY * RECORD_BYTES), self._size * RECORD_BYTES)
        os.fsync(self._fd)
        self._free = list(range(self._size + GROW_BY - 1, self._size - 1, -1))
        self._size += GROW_BY

    def free(self, slot: int) -> None:
        """Forget what the slot held; its folder is clean."""
        os.pwrite(self._fd, b"\0", slot * RECORD_BYTES)
        self._free.append(slot)

    def read(self, slot: int) -> Life | None:
        """Read a record as it stands now."""
        return parse(slot, os.pread(self._fd, RECORD_BYTES, slot * RECORD_BYTES))

    def note_order(self, slot: int, at_ns: int) -> None:
        """Write down that the worker was ordered to end, so that its end explains nothing."""
        life = self.read(slot)
        if life is not None and not life.ordered:
            self._add(slot, b"O %d\n" % at_ns)

    def bury(self, slot: int, cause: EndCause, at_ns: int, detail: str) -> bool:
        """Write a synced tombstone if no sitter took charge; False if one did."""
        if not self._lock(slot):
            return False
        try:
            life = self.read(slot)
            if life is None or life.sitter:
                return False
            plain = detail.replace("\n", " ").replace("\0", " ").encode()[:TOMB_DETAIL_MAX]
            self._add(slot, b"T %s %d %s\n" % (cause.value.encode(), at_ns, plain))
            os.fdatasync(self._fd)
            return True
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, RECORD_BYTES, slot * RECORD_BYTES, os.SEEK_SET)

    def _add(self, slot: int, line: bytes) -> None:
        half = os.pread(self._fd, HALF_BYTES, slot * RECORD_BYTES)
        end = half.index(b"\0")
        os.pwrite(self._fd, line, slot * RECORD_BYTES + end)

    def _lock(self, slot: int) -> bool:
        flags = fcntl.LOCK_EX | fcntl.LOCK_NB
        try:
            fcntl.lockf(self._fd, flags, RECORD_BYTES, slot * RECORD_BYTES, os.SEEK_SET)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    def holder(self, slot: int) -> int:
        """Give the pid of the sitter that serves the slot just now; 0 if none does."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, slot * RECORD_BYTES, RECORD_BYTES, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(self._fd, fcntl.F_GETLK, asked))
        return 0 if kind == fcntl.F_UNLCK else pid

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)
