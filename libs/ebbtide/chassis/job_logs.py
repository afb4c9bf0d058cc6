"""Logs of jobs in the store: compressed chunks named by job, attempt, worker and offset.

``logs/<job>/<attempt>/<worker>/<offset of its first byte, 16 digits>.zst``, each one zstd frame
that says how much it holds. A chunk's file time is when its last byte was seen, so the names and
times are the index. A chunk written twice is one chunk: its name is its place. Where a log was cut
short by its worker, ``<offset>.cut`` marks it, a notice stands at that offset, and what the worker
wrote since follows the notice. All functions block; call them in a thread.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ebbtide.contracts.ids import JobId

CHUNK_MAX = 1 << 20
"""Plain bytes in one chunk: what a reader must unpack to get at a single line."""
CUT = b"\n[ebbtide: this log was cut short and begins again; what was not stored before is lost]\n"
"""The notice: the same each time, so that its place in the log is known from where it begins."""
_SUFFIX = ".zst"
_CUT_SUFFIX = ".cut"
_DIGITS = 16
_HEADER_BYTES = 18
"""A zstd frame's header is no longer."""
_LEVEL = 3


class Chunk(NamedTuple):
    """A chunk in the store: ``size`` plain bytes from ``offset`` on."""

    path: Path
    offset: int
    size: int


def folder(store: Path, job: JobId | str, attempt: int, worker: int) -> Path:
    """Name the folder of one worker's chunks."""
    return store / "logs" / job / str(attempt) / str(worker)


def chunks(place: Path) -> list[Chunk]:
    """List the chunks of a worker in order."""
    found = []
    for offset in _offsets(place, _SUFFIX):
        path = place / f"{offset:0{_DIGITS}d}{_SUFFIX}"
        found.append(Chunk(path, offset, _plain_size(path)))
    return found


def _offsets(place: Path, suffix: str) -> list[int]:
    """Give the offsets that files with ``suffix`` are named by, in order."""
    try:
        names = [path.stem for path in place.iterdir() if path.suffix == suffix]
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if len(name) == _DIGITS and name.isdigit())


def _plain_size(path: Path) -> int:
    import zstandard

    with path.open("rb") as file:
        return zstandard.frame_content_size(file.read(_HEADER_BYTES))


def stored_size(place: Path) -> int:
    """Say how many bytes of the log the store has without a gap, from its beginning."""
    end = 0
    for chunk in chunks(place):
        if chunk.offset > end:
            break
        end = max(end, chunk.offset + chunk.size)
    return end


def write_chunk(place: Path, offset: int, data: bytes, seen_s: float) -> None:
    """Store a chunk, synced, whole or not at all.

    ``seen_s`` is when its last byte was seen.
    """
    import zstandard

    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    packed = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True).compress(data)
    fd, new = tempfile.mkstemp(dir=place, prefix=".new-")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(packed)
            file.flush()
            os.utime(file.fileno(), (seen_s, seen_s))
            os.fsync(file.fileno())
        Path(new).replace(place / f"{offset:0{_DIGITS}d}{_SUFFIX}")
    except BaseException:
        Path(new).unlink(missing_ok=True)
        raise


def cut(place: Path, offset: int, seen_s: float) -> None:
    """Note that a log was cut short when ``offset`` bytes of it were stored.

    The mark comes first: without the notice it is known to be half done, and done again.
    """
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    (place / f"{offset:0{_DIGITS}d}{_CUT_SUFFIX}").touch(mode=0o600)
    write_chunk(place, offset, CUT, seen_s)


def beginning(place: Path) -> int:
    """Give the offset at which the first byte of the worker's file stands: 0 until it was cut."""
    return max((offset + len(CUT) for offset in _offsets(place, _CUT_SUFFIX)), default=0)


def read_range(
    store: Path, job: JobId | str, attempt: int, worker: int, offset: int, limit: int
) -> tuple[bytes, int]:
    """Read at most ``limit`` bytes from ``offset`` on; also give how many the store has in all.

    What is given ends at the first gap. An empty answer means that the store has nothing there
    (yet).
    """
    place = folder(store, job, attempt, worker)
    found = chunks(place)
    size = found[-1].offset + found[-1].size if found else 0
    pieces, wanted = [], limit
    for data in _from(found, offset):
        pieces.append(data[:wanted])
        wanted -= len(pieces[-1])
        if wanted <= 0:
            break
    return b"".join(pieces), size


def _from(found: list[Chunk], offset: int) -> Iterator[bytes]:
    import zstandard

    for chunk in found:
        if chunk.offset > offset:
            return
        if chunk.offset + chunk.size <= offset:
            continue
        plain = zstandard.ZstdDecompressor().decompress(chunk.path.read_bytes())
        yield plain[offset - chunk.offset :]
        offset = chunk.offset + chunk.size
