"""Code folders of jobs: checked, unpacked once per node, laid out per worker.

What a worker gets is a copy: it may change its files without changing those of another attempt. An
archive is somebody's upload, so nothing in it may point out of its folder, and its size is
bounded.
"""

import hashlib
import os
import shutil
import tarfile
import tempfile
import threading
from pathlib import Path, PurePosixPath

from ebbtide.contracts.errors import EbbtideError, NotFound

UNPACKED_MAX = 4 << 30
ENTRIES_MAX = 200_000
KEPT = 32
"""Unpacked folders kept on a node, newest first."""
_PIECE = 1 << 20


class BadCode(EbbtideError):
    """The archive is not what its digest says, or not fit to be unpacked."""

    code = "code.bad"


class CodeStore:
    """The node's unpacked code, shared by its workers' threads."""

    def __init__(self, store: Path, cache: Path) -> None:
        self._store = store / "code"
        self._cache = cache
        self._lock = threading.Lock()

    def lay_out(self, code: str, work: Path) -> None:
        """Copy the folder named by ``code`` (``sha256:<hex>``) into ``work``. Blocking.

        Raises:
            NotFound: the store does not hold it.
            BadCode: it is damaged, too large, or points out of its folder.
        """
        digest = code.removeprefix("sha256:")
        with self._lock:
            folder = self._cache / digest
            if folder.is_dir():
                os.utime(folder)
            else:
                self._unpack(digest, folder)
                self._forget_old(folder)
            shutil.copytree(folder, work, symlinks=True, dirs_exist_ok=True)

    def _unpack(self, digest: str, folder: Path) -> None:
        archive = self._store / f"{digest}.tar.zst"
        if not archive.is_file():
            raise NotFound(f"the store has no code folder sha256:{digest}")
        if _sha256(archive) != digest:
            raise BadCode(f"the code folder sha256:{digest} is damaged in the store")
        self._cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=self._cache, prefix="new-") as new:
            target = Path(new) / "code"
            target.mkdir()
            unpack(archive, target)
            target.rename(folder)

    def _forget_old(self, keep: Path) -> None:
        folders = sorted(self._cache.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for folder in folders[KEPT:]:
            if folder != keep:
                shutil.rmtree(folder, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack(archive: Path, target: Path) -> None:
    """Unpack a zstd-compressed tar archive of files, folders and links that stay within it.

    Raises:
        BadCode: an entry points out of the folder, is a device, or there is too much of it.
    """
    import zstandard

    total = entries = 0
    links: set[str] = set()
    reader = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    try:
        with (
            archive.open("rb") as file,
            reader.stream_reader(file, read_size=_PIECE) as plain,
            tarfile.open(fileobj=plain, mode="r|") as tar,
        ):
            # Every entry is checked below; newer Pythons warn where no filter was chosen.
            tar.extraction_filter = lambda member, _path: member
            for member in tar:
                entries += 1
                total += member.size
                if entries > ENTRIES_MAX or total > UNPACKED_MAX:
                    raise BadCode(f"more than {ENTRIES_MAX} entries or {UNPACKED_MAX} bytes")
                _check(member, links)
                member.uid, member.gid = os.getuid(), os.getgid()
                member.uname = member.gname = ""
                member.mode = member.mode & 0o755 | 0o600
                tar.extract(member, target, set_attrs=not member.issym())
    except (tarfile.TarError, zstandard.ZstdError) as error:
        raise BadCode(f"the code archive cannot be read: {error}") from error


def _check(member: tarfile.TarInfo, links: set[str]) -> None:
    name = PurePosixPath(member.name)
    # A link that was laid before may turn an innocent name into a way out.
    if not _is_inside(member.name) or any(str(parent) in links for parent in name.parents):
        raise BadCode(f"the entry {member.name!r} points out of the code folder")
    if member.isdir() or member.isreg():
        member.mode |= 0o100 if member.isdir() else 0
        return
    link = (
        str(PurePosixPath(member.name).parent / member.linkname)
        if member.issym()
        else member.linkname
    )
    if not (member.issym() or member.islnk()) or not _is_inside(link):
        raise BadCode(f"the entry {member.name!r} is a device, or a link out of the code folder")
    links.add(str(name))


def _is_inside(name: str) -> bool:
    depth = 0
    if name.startswith("/"):
        return False
    for part in PurePosixPath(name).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return False
    return True
