"""Checkpoints: a folder per step and life, sealed by a manifest, then told to the platform.

The folder's name carries step, epoch, attempt and round, so two lives of a job never write the
same place. The manifest is written last and moved into place: a folder with one is whole. What is
the newest for everybody is for the platform to say; without one, the newest sealed folder is.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ebbtide.train import door
from ebbtide.train.place import checkpoints, life

MANIFEST = "manifest.json"
DIGEST_BYTES = 32
_PIECE = 1 << 20
_NAME = re.compile(r"step-(\d+)\.epoch-(\d+)\.attempt-(\d+)\.round-(\d+)")


class CheckpointError(RuntimeError):
    """A checkpoint could not be committed, or is not what its manifest says."""


class Found(NamedTuple):
    """A committed checkpoint."""

    step: int
    folder: Path


def folder_for(step: int) -> Path:
    """Name the folder of this life's checkpoint of ``step``, and make it."""
    epoch, attempt, round_ = life()
    name = f"step-{step:010d}.epoch-{epoch}.attempt-{attempt}.round-{round_}"
    folder = checkpoints() / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def save(step: int) -> Iterator[Path]:
    """Give the folder for ``step``; commit it when the block ends well.

    For one process that writes everything. When several ranks write, each writes into
    :func:`folder_for` and one of them calls :func:`commit` after all have finished.
    """
    yield folder_for(step)
    commit(step)


def commit(step: int) -> Path:
    """Seal the checkpoint of ``step`` and have it recorded.

    Once this returns, the checkpoint survives anything. Safe to repeat.

    Raises:
        CheckpointError: it is empty, or the platform refused or could not be told.
    """
    folder = folder_for(step)
    digest, size = _seal(folder, step)
    if door.is_open():
        name = folder.name
        try:
            told = door.say("commit", door.SAY_S, step=step, folder=name, digest=digest, bytes=size)
        except door.Refused as refused:
            raise CheckpointError(f"step {step} was refused: {refused}") from refused
        if not told:
            raise CheckpointError(f"step {step} is on disk, but the node's agent does not answer")
    return folder


def _seal(folder: Path, step: int) -> tuple[str, int]:
    """Sync every file, write the manifest, move it into place; give its digest and all bytes."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and _counts(path)]
    if not paths:
        raise CheckpointError(f"the checkpoint of step {step} is empty: nothing lies in {folder}")
    files = {str(path.relative_to(folder)): _measure(path) for path in paths}
    body = json.dumps({"step": step, "files": files}, sort_keys=True, indent=1).encode()
    new = folder / f".{MANIFEST}.new"
    with new.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    for inner in {path.parent for path in paths} - {folder}:
        _sync_folder(inner)
    new.replace(folder / MANIFEST)
    _sync_folder(folder)
    _sync_folder(folder.parent)
    size = sum(int(entry["bytes"]) for entry in files.values())
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).hexdigest(), size


def _counts(path: Path) -> bool:
    return path.name not in (MANIFEST, f".{MANIFEST}.new")


def _measure(path: Path) -> dict[str, int | str]:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    size = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            size += len(piece)
        os.fsync(file.fileno())
    return {"bytes": size, "blake2b": digest.hexdigest()}


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def newest() -> Found | None:
    """Give the checkpoint to start from, checked against its manifest; None to start from nothing.

    All workers of an attempt get the same answer.

    Raises:
        CheckpointError: the checkpoint that the platform named is damaged or gone.
    """
    if door.is_open():
        name, step = os.environ.get("EBB_RESUME_FOLDER", ""), os.environ.get("EBB_RESUME_STEP", "")
        found = Found(int(step), checkpoints() / name) if name and step else None
    else:
        found = _newest_sealed()
    if found:
        _check(found)
    return found


def _newest_sealed() -> Found | None:
    sealed = []
    for manifest in checkpoints().glob(f"step-*/{MANIFEST}"):
        match = _NAME.fullmatch(manifest.parent.name)
        if match:
            sealed.append((tuple(map(int, match.groups())), manifest.parent))
    if not sealed:
        return None
    numbers, folder = max(sealed)
    return Found(numbers[0], folder)


def _check(found: Found) -> None:
    try:
        files = json.loads((found.folder / MANIFEST).read_bytes())["files"]
        damaged = [name for name, entry in files.items() if _measure(found.folder / name) != entry]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"the checkpoint {found.folder} cannot be read: {error}") from error
    if damaged:
        raise CheckpointError(f"the checkpoint {found.folder} is damaged: {', '.join(damaged)}")
