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

from ebbtide.agent.model import Life, Note, WorkerKey, parse_life
from ebbtide.agent.sitter import HALF_BYTES, RECORD_BYTES
from ebbtide.contracts.errors import InvariantBroken
from ebbtide.contracts.outcomes import EndCause

GROW_BY = 64
"""Slots added at a time: one write and one sync."""
SLOTS_MAX = 8192
TOMB_DETAIL_MAX = 120
_FLOCK = struct.Struct("hhqqi4x")


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
        record = os.pread(self._fd, RECORD_BYTES, slot * RECORD_BYTES)
        return parse_life(slot, record[:HALF_BYTES], record[HALF_BYTES:])

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
