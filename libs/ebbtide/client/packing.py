"""Packs a code folder into one archive whose bytes depend on nothing but the files in it.

The same files give the same digest on every machine, so code is uploaded once. What
``.ebbignore`` (or, without one, ``.gitignore``) names is left out, and what nobody wants:
``.git``, ``__pycache__``, ``.venv*``.
"""

import hashlib
import io
import os
import posixpath
import re
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

from ebbtide.contracts.errors import Malformed, Rejected

ARCHIVE_BYTES_MAX = 256 * 1024 * 1024
"""What the platform takes."""
CONTENT_BYTES_MAX = 2 * 1024 * 1024 * 1024
FILES_MAX = 50_000
IN_MEMORY_BYTES = 8 * 1024 * 1024
LEVEL = 3
PIECE_BYTES = 1024 * 1024
ALWAYS_LEFT_OUT = (".git", "__pycache__", ".venv*", "*.pyc", ".ebbignore")


class Archive(NamedTuple):
    """A packed folder: an open file at its beginning, its digest and its size."""

    file: IO[bytes]
    digest: str
    size: int


def _refuse(folder: Path, detail: str, hint: str) -> Malformed:
    return Malformed(
        Rejected(code="code.folder", field="code", detail=f"{folder}: {detail}", hint=hint)
    )


class Rule(NamedTuple):
    """One line of an ignore file; the last that matches decides."""

    pattern: re.Pattern[str]
    keeps: bool
    folders_only: bool


def read_rules(text: str) -> list[Rule]:
    """Read ignore lines: ``*``, ``?`` and ``**``, a leading ``!``, a leading or trailing ``/``."""
    rules = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        keeps, line = line.startswith("!"), line.removeprefix("!")
        folders_only, line = line.endswith("/"), line.rstrip("/")
        anchored = "/" in line
        body = "".join(
            _PIECES.get(piece) or re.escape(piece) for piece in _SPLIT.split(line.lstrip("/"))
        )
        prefix = "" if anchored else "(?:.*/)?"
        rules.append(Rule(re.compile(prefix + body), keeps, folders_only))
    return rules


_SPLIT = re.compile(r"(\*\*/|\*\*|\*|\?)")
_PIECES = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def is_left_out(rules: list[Rule], path: str, *, is_folder: bool) -> bool:
    """Say whether ``path`` (with slashes, relative to the folder) is not packed."""
    left_out = False
    for rule in rules:
        if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(path):
            left_out = not rule.keeps
    return left_out


def files_of(folder: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    """Give what is packed, in order of name: files, links and folders.

    Raises:
        Malformed: the folder is none, or holds too much.
    """
    if not folder.is_dir():
        raise _refuse(
            folder, "there is no such folder", "code is a folder, relative to the job file"
        )
    ignored = next(
        (folder / name for name in (".ebbignore", ".gitignore") if (folder / name).is_file()), None
    )
    text = ignored.read_text(encoding="utf-8", errors="replace") if ignored is not None else ""
    rules = read_rules("\n".join(ALWAYS_LEFT_OUT) + "\n" + text)
    for count, (name, path, facts) in enumerate(_walk(folder, "", rules)):
        if count >= FILES_MAX:
            hint = "leave data out: name it in .ebbignore"
            raise _refuse(folder, f"more than {FILES_MAX} files", hint)
        yield name, path, facts


def _walk(
    folder: Path, prefix: str, rules: list[Rule]
) -> Iterator[tuple[str, Path, os.stat_result]]:
    for entry in sorted(os.scandir(folder), key=lambda one: one.name):
        name, path = prefix + entry.name, Path(entry.path)
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_left_out(rules, name, is_folder=is_folder):
            continue
        facts = entry.stat(follow_symlinks=False)
        if is_folder:
            yield name, path, facts
            yield from _walk(path, name + "/", rules)
        elif stat.S_ISREG(facts.st_mode) or stat.S_ISLNK(facts.st_mode):
            yield name, path, facts


def pack(folder: Path) -> Archive:
    """Pack ``folder``. The caller closes the archive's file.

    Raises:
        Malformed: it holds too much, or a link that leads out of it.
    """
    import zstandard

    hasher = hashlib.sha256()
    kept: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115 - the caller's
    try:
        sink = _Sink(kept, hasher, folder)
        compressor = zstandard.ZstdCompressor(level=LEVEL, threads=0)
        with (
            compressor.stream_writer(cast("IO[bytes]", sink), closefd=False) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
        ):
            _fill(tar, folder)
    except BaseException:
        kept.close()
        raise
    kept.seek(0)
    return Archive(kept, f"sha256:{hasher.hexdigest()}", sink.size)


class _Sink(io.RawIOBase):
    """Counts and hashes what goes to the archive, and stops it at the bound."""

    def __init__(self, file: IO[bytes], hasher: "hashlib._Hash", folder: Path) -> None:
        self._file = file
        self._hasher = hasher
        self._folder = folder
        self.size = 0

    def writable(self) -> bool:
        """Say that this can be written."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # only ever given bytes
        """Take a piece."""
        self.size += len(data)
        if self.size > ARCHIVE_BYTES_MAX:
            raise _too_large(self._folder, f"more than {ARCHIVE_BYTES_MAX >> 20} MiB when packed")
        self._hasher.update(data)
        return self._file.write(data)


def _too_large(folder: Path, detail: str) -> Malformed:
    largest = sorted(((facts.st_size, name) for name, _, facts in files_of(folder)), reverse=True)[
        :3
    ]
    names = ", ".join(f"{name} ({size >> 20} MiB)" for size, name in largest)
    return _refuse(folder, detail, f"name what is not code in .ebbignore; the largest: {names}")


def _fill(tar: tarfile.TarFile, folder: Path) -> None:
    total = 0
    for name, path, facts in files_of(folder):
        entry = tarfile.TarInfo(name)
        entry.mode = 0o755 if facts.st_mode & 0o100 else 0o644
        if stat.S_ISDIR(facts.st_mode):
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o755
            tar.addfile(entry)
        elif stat.S_ISLNK(facts.st_mode):
            entry.type = tarfile.SYMTYPE
            entry.linkname = _link(folder, name, path)
            tar.addfile(entry)
        else:
            total += facts.st_size
            if total > CONTENT_BYTES_MAX:
                raise _too_large(folder, f"more than {CONTENT_BYTES_MAX >> 30} GiB of files")
            _add(tar, entry, path, folder)


def _add(tar: tarfile.TarFile, entry: tarfile.TarInfo, path: Path, folder: Path) -> None:
    try:
        with path.open("rb") as file:
            entry.size = os.fstat(file.fileno()).st_size
            tar.addfile(entry, file)
    except OSError as error:
        why = error.strerror or "it changed while it was read"
        raise _refuse(
            folder, f"{entry.name}: {why}", "name it in .ebbignore, or try again"
        ) from error


def _link(folder: Path, name: str, path: Path) -> str:
    target = str(path.readlink())
    inside = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    if posixpath.isabs(target) or inside.startswith(".."):
        hint = "copy the file, or name the link in .ebbignore"
        raise _refuse(folder, f"{name} is a link that leads out of the folder", hint)
    return target
