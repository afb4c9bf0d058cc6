"""The folders of slots, each used by one worker after the other: as laid out, or wiped.

A worker owns its folder while it runs and may leave anything in it; nothing here follows a link.
"""

import os
import shutil
import stat
from pathlib import Path


def is_as_laid_out(folder: Path) -> bool:
    """Say whether the next worker finds what the first one found; a log is emptied for it.

    A worker may have replaced anything by a link or a pipe, and the next would trip over it.
    """
    try:
        with os.scandir(folder) as entries:
            found = {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
        work, log = found.pop("work"), found.pop("log", None)
        if found or work.st_mode != stat.S_IFDIR | 0o700 or os.listdir(folder / "work"):  # noqa: PTH208
            return False
        if log is not None and (log.st_mode != stat.S_IFREG | 0o600 or log.st_nlink != 1):
            return False
        if log is not None and log.st_size:
            _empty(folder / "log")
    except (OSError, KeyError):
        return False
    return True


def _empty(log: Path) -> None:
    """Empty a file, and never what a link in its place points to."""
    fd = os.open(log, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def wipe(folder: Path) -> None:
    """Remove a slot's folder, also where a worker took rights away from itself."""
    if folder.is_symlink():
        folder.unlink()
    if not folder.exists():
        return
    try:
        shutil.rmtree(folder)
    except PermissionError:
        folder.chmod(0o700)
        for parent, names, _ in os.walk(folder):
            # Before they are walked into: what cannot be listed is passed over in silence.
            for path in (Path(parent, name) for name in names):
                if not path.is_symlink():
                    path.chmod(0o700)
        shutil.rmtree(folder)


def log_size(folder: Path) -> int:
    """Give how long the log in a slot's folder is; 0 if there is none."""
    try:
        return (folder / "log").lstat().st_size
    except OSError:
        return 0
