"""The last word on workers whose slots are used by others now.

A restored log may have forgotten an end that it had acknowledged; then it must hear it again, and
the node must not start again what has ended. So final reports are kept, the newest :data:`KEPT` of
them, in memory as encoded bytes and in one file with a line each.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ebbtide.agent.model import WorkerKey
from ebbtide.agent.reports import key_of_report
from ebbtide.contracts.agents import WorkerReport

KEPT = 2000
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerReport).decode


class Tombstones:
    """Final reports by worker, oldest first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[WorkerKey, bytes] = {}
        self._lines = 0
        self._load()

    def _load(self) -> None:
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                self._kept[key_of_report(_decode(line))] = line
            except msgspec.MsgspecError:
                continue  # the last line of a machine that stopped while it was written
        self._lines = len(lines)
        self._forget()

    def _forget(self) -> list[WorkerKey]:
        surplus = list(self._kept)[: max(0, len(self._kept) - KEPT)]
        for key in surplus:
            del self._kept[key]
        return surplus

    def __iter__(self) -> Iterator[WorkerKey]:
        return iter(self._kept)

    def reports(self) -> list[WorkerReport]:
        """Give all final reports."""
        return [_decode(line) for line in self._kept.values()]

    def write(self, reports: Sequence[WorkerReport]) -> None:
        """Put final reports on disk, synced. Blocking; :meth:`keep` makes them known afterwards."""
        lines = [_encode(one) for one in reports]
        if self._lines + len(lines) > 2 * KEPT:
            new = self._path.with_suffix(".new")
            lines = [*self._kept.values(), *lines]
            _write_synced(new, lines, os.O_TRUNC)
            new.replace(self._path)
            self._lines = len(lines)
        else:
            _write_synced(self._path, lines, os.O_APPEND)
            self._lines += len(lines)

    def keep(self, reports: Sequence[WorkerReport]) -> list[WorkerKey]:
        """Know final reports; give the workers that are forgotten for it."""
        for one in reports:
            self._kept[key_of_report(one)] = _encode(one)
        return self._forget()


def _write_synced(path: Path, lines: Sequence[bytes], how: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o600)
    try:
        os.write(fd, b"".join(line + b"\n" for line in lines))
        os.fsync(fd)
    finally:
        os.close(fd)
