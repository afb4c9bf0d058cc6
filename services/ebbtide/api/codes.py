"""Uploaded code: archives in the store, named by the digest of their bytes.

An archive appears whole or not at all: it is written beside its place, checked, synced and
renamed. Two uploads of one digest are one archive. Nothing here looks into an archive; agents do
that in the sandbox of a worker's folder.
"""

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from ebbtide.api.problems import refuse
from ebbtide.contracts.errors import Malformed, Rejected, Unavailable

CODE_BYTES_MAX = 256 * 1024 * 1024
BUFFER_BYTES = 1024 * 1024
"""Written in pieces of this size, each on a thread: the loop answers others meanwhile."""
KNOWN_MAX = 4096
"""Digests remembered as present, so that a submit does not ask the disk each time."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class CodeStore:
    """The folder ``code`` of the store."""

    def __init__(self, store: Path, unique: str) -> None:
        self._folder = store / "code"
        self._unique = unique
        self._count = 0
        self._known: dict[str, None] = {}

    def path(self, digest: str) -> Path:
        """Give the place of an archive.

        Raises:
            Malformed: the digest is none; nothing else may reach the file system.
        """
        if _DIGEST.fullmatch(digest) is None:
            raise Malformed(
                Rejected(
                    code="code.digest",
                    field="digest",
                    detail=f"{digest[:80]!r} is not sha256: and 64 hexadecimal digits",
                    hint="send the SHA-256 of the archive's bytes",
                )
            )
        return self._folder / f"{digest.removeprefix('sha256:')}.tar.zst"

    async def has(self, digest: str) -> bool:
        """Say whether the archive is there."""
        if digest in self._known:
            return True
        there = await asyncio.to_thread(self.path(digest).is_file)
        if there:
            self._remember(digest)
        return there

    def _remember(self, digest: str) -> None:
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[digest] = None

    async def receive(self, digest: str, body: AsyncIterator[bytes]) -> bool:
        """Take an upload; give whether it was new. What is there already is read and not written.

        Raises:
            Refusal: too large, or the bytes have another digest; nothing was kept.
            Unavailable: the store cannot be written.
        """
        place = self.path(digest)
        if await self.has(digest):
            await _drain(body)
            return False
        self._count += 1
        beside = place.with_name(f".{place.name}.{self._unique}.{self._count}")
        try:
            await self._write(beside, digest, body)
            await asyncio.to_thread(_settle, beside, place)
        except OSError as error:
            raise Unavailable(f"the store cannot be written: {error.strerror}") from error
        finally:
            await asyncio.to_thread(beside.unlink, missing_ok=True)
        self._remember(digest)
        return True

    async def _write(self, beside: Path, digest: str, body: AsyncIterator[bytes]) -> None:
        file = await asyncio.to_thread(_open, beside)
        try:
            hasher = hashlib.sha256()
            buffer = bytearray()
            size = 0
            async for piece in body:
                size += len(piece)
                if size > CODE_BYTES_MAX:
                    raise _too_large()
                buffer += piece
                if len(buffer) >= BUFFER_BYTES:
                    await asyncio.to_thread(_take, file, hasher, bytes(buffer))
                    buffer.clear()
            await asyncio.to_thread(_take, file, hasher, bytes(buffer))
            if f"sha256:{hasher.hexdigest()}" != digest:
                detail = f"the bytes have digest sha256:{hasher.hexdigest()}"
                raise refuse(422, "code.digest", detail, "upload the archive again", "digest")
            await asyncio.to_thread(os.fsync, file.fileno())
        finally:
            await asyncio.to_thread(file.close)


def _too_large() -> Exception:
    most = CODE_BYTES_MAX // 2**20
    hint = "leave data out of the code folder: list it in .ebbignore"
    return refuse(413, "code.too_large", f"the archive is larger than {most} MiB", hint)


async def _drain(body: AsyncIterator[bytes]) -> None:
    size = 0
    async for piece in body:
        size += len(piece)
        if size > CODE_BYTES_MAX:
            raise _too_large()


def _open(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("xb")


def _take(file: BinaryIO, hasher: "hashlib._Hash", piece: bytes) -> None:
    hasher.update(piece)
    file.write(piece)


def _settle(beside: Path, place: Path) -> None:
    """Give the archive its name for good, also across a power cut."""
    beside.rename(place)
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
