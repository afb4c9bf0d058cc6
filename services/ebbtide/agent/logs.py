"""Logs of the node's workers: shipped to the store as they grow, and read out until then.

Each worker writes its own file. The bytes never pass through the agent on their way to disk, so
the last lines before a crash of anything are there. Growth is looked for every :data:`LOOK_S`; a
worker that writes nothing costs nothing more.

A worker may cut its own log short. What the store has is never rewritten: a notice follows it
there, and then what the worker wrote since, so offsets go on growing. What had not been stored
when the log was cut is lost, as the notice says; a log that has grown beyond what was stored of it
by the next look cannot be told from one that only grew.
"""

import asyncio
import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec
import structlog

from ebbtide.agent.supervisor import Worker
from ebbtide.chassis import job_logs
from ebbtide.chassis.bus import Bus, Message
from ebbtide.contracts.agents import LogChunk, LogRead
from ebbtide.contracts.errors import EbbtideError

LOOK_S = 1.0
SHIP_BYTES = 256 * 1024
SHIP_AFTER_S = 30.0
"""A log that grows slowly is shipped this often, so that a lost node loses no more than that."""
READ_MAX = 512 * 1024
"""Bytes in one answer: a message may have 1 MiB, and they may grow by a third on the way."""
WAIT_MAX_S = 30.0
FOLLOW_S = 0.05
READERS_MAX = 256
_GONE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES))
"""What opening says of a log that its worker removed, replaced or locked away."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LogRead).decode
_log = structlog.get_logger()


class Shipped:
    """How far a log has gone to the store, and since when there is more.

    ``offset`` and ``size`` count the worker's file, whose first byte is the log's ``begin``-th.
    """

    __slots__ = ("begin", "offset", "since_s", "size")

    def __init__(self, begin: int, offset: int) -> None:
        self.begin = begin
        self.offset = offset
        self.size = offset
        self.since_s = 0.0


class Shipper:
    """Brings logs to the store as they grow, and to their last byte when their worker has ended."""

    def __init__(self, store: Path, path_of: Callable[[int], Path]) -> None:
        self._store = store
        self._path_of = path_of
        self._shipped: dict[str, Shipped] = {}
        self._lock = threading.Lock()

    def ship_grown(self, workers: Iterable[Worker], now_s: float) -> None:
        """Ship what has grown enough or waited long enough. Blocking."""
        for one in workers:
            path = self._path_of(one.slot)
            try:
                size = path.lstat().st_size
            except OSError:
                continue
            with self._lock:
                if size or str(one.key) in self._shipped:
                    self._consider(one, path, size, now_s)

    def _consider(self, one: Worker, path: Path, size: int, now_s: float) -> None:
        state = self._state(one)
        if size == state.offset:
            return
        if state.size != size:
            state.size = size
            state.since_s = state.since_s or now_s
        grown = size - state.offset
        if grown < 0 or grown >= SHIP_BYTES or now_s - state.since_s >= SHIP_AFTER_S:
            self._ship(one, path, state, size)
            state.since_s = 0.0

    def ship_rest(self, one: Worker) -> None:
        """Ship the log of an ended worker to its last byte. Blocking.

        Raises:
            OSError: the store did not take it; nothing is lost, try again.
        """
        size = one.end.log_bytes if one.end else 0
        with self._lock:
            if size or str(one.key) in self._shipped:
                self._ship(one, self._path_of(one.slot), self._state(one), size)
            self._shipped.pop(str(one.key), None)

    def _state(self, one: Worker) -> Shipped:
        key = str(one.key)
        if key not in self._shipped:
            place = self._place(one)
            begin, stored = job_logs.beginning(place), job_logs.stored_size(place)
            if stored < begin:
                job_logs.cut(place, stored, time.time())  # an agent died between mark and notice
            self._shipped[key] = Shipped(begin, max(0, stored - begin))
        return self._shipped[key]

    def beginning(self, one: Worker) -> int:
        """Give the offset in its log at which the worker's file begins. Blocking.

        Raises:
            OSError: the store does not say.
        """
        state = self._shipped.get(str(one.key))
        return state.begin if state is not None else job_logs.beginning(self._place(one))

    def _place(self, one: Worker) -> Path:
        return job_logs.folder(self._store, one.key.job, one.key.attempt, one.key.worker)

    def _ship(self, one: Worker, path: Path, state: Shipped, size: int) -> None:
        file = open_log(path)
        if file is None:
            _log.warning("log.gone", worker=str(one.key), missing=size - state.offset)
            return
        with file:
            now = file.seek(0, os.SEEK_END)
            if now < state.offset:
                self._cut(one, state, now)
            file.seek(state.offset)
            while state.offset < size:
                data = file.read(min(job_logs.CHUNK_MAX, size - state.offset))
                if not data:
                    return
                place = state.begin + state.offset
                job_logs.write_chunk(self._place(one), place, data, time.time())
                state.offset += len(data)

    def _cut(self, one: Worker, state: Shipped, size: int) -> None:
        """Begin the log again behind what is stored of it."""
        _log.warning("log.cut_short", worker=str(one.key), stored=state.offset, size=size)
        place = state.begin + state.offset
        job_logs.cut(self._place(one), place, time.time())
        state.begin, state.offset, state.size = place + len(job_logs.CUT), 0, 0


class Reader:
    """Answers ranged reads.

    One that asks to wait is answered when there is more, or when the log has ended.
    """

    def __init__(
        self,
        bus: Bus,
        find: Callable[[str, int, int], Worker | None],
        path_of: Callable[[int], Path],
        beginning: Callable[[Worker], int],
    ) -> None:
        self._bus = bus
        self._find = find
        self._path_of = path_of
        self._beginning = beginning
        self._tasks: set[asyncio.Task[None]] = set()

    async def on_read(self, message: Message) -> None:
        """Take a request; it is answered by a task of its own, for it may wait."""
        try:
            wanted = _decode(message.data)
        except msgspec.MsgspecError as error:
            _log.warning("log.malformed_read", error=str(error))
            return
        if message.reply and len(self._tasks) < READERS_MAX:
            task = asyncio.get_running_loop().create_task(self._answer(wanted, message.reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, wanted: LogRead, reply: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(WAIT_MAX_S, wanted.wait_ms / 1000)
        while True:
            chunk = await self._read(wanted)
            if chunk.data or chunk.ended or not chunk.known or loop.time() >= deadline:
                try:
                    await self._bus.publish(reply, _encode(chunk))
                except EbbtideError as error:
                    _log.debug("log.not_answered", error=str(error))  # who asked asks again
                return
            await asyncio.sleep(min(FOLLOW_S, max(0.0, deadline - loop.time())))

    async def _read(self, wanted: LogRead) -> LogChunk:
        one = self._find(wanted.job, wanted.attempt, wanted.worker)
        unknown = LogChunk(offset=wanted.offset, size=0, ended=False, data=b"", known=False)
        if one is None or one.slot < 0:
            return unknown
        ended = one.end is not None
        limit = max(0, min(wanted.limit, READ_MAX))
        path = self._path_of(one.slot)
        try:
            begin = await asyncio.to_thread(self._beginning, one)
        except OSError as error:
            _log.warning("log.not_placed", worker=str(one.key), error=str(error))
            return unknown
        offset = max(0, wanted.offset)
        if offset < begin:
            return unknown  # it was cut since: the store has what was before
        data, size = await asyncio.to_thread(_read_file, path, offset - begin, limit)
        size += begin
        if self._find(wanted.job, wanted.attempt, wanted.worker) is not one:
            return unknown  # its slot was cleaned meanwhile, and may be another's
        over = ended and wanted.offset + len(data) >= size
        return LogChunk(offset=wanted.offset, size=size, ended=over, data=data)

    async def close(self) -> None:
        """Stop answering."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _read_file(path: Path, offset: int, limit: int) -> tuple[bytes, int]:
    file = open_log(path)
    if file is None:
        return b"", 0
    with file:
        size = file.seek(0, os.SEEK_END)
        file.seek(offset)
        return file.read(limit), size


def open_log(path: Path) -> BinaryIO | None:
    """Open a worker's log, which it may have removed or replaced; None if it is none any more.

    Opening a pipe would wait for ever, and following a link would show what is no log.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    return os.fdopen(fd, "rb")
