"""What a training script may import: who am I, checkpoints, progress.

Standard library only, and the same without a platform: then a script is rank 0 of 1 and its
checkpoints lie in a folder of its own::

    from ebbtide import train

    found = train.newest()
    start = load(found.folder) + 1 if found else 0
    for step in range(start, steps):
        ...
        with train.save(step) as folder:
            write(folder / "model.json")

A checkpoint counts once :func:`commit` (or the end of :func:`save`'s block) has returned.
"""

from ebbtide.train.checkpoints import CheckpointError, Found, commit, folder_for, newest, save
from ebbtide.train.door import progress
from ebbtide.train.place import checkpoints, local_rank, rank, role, world_size

__all__ = [
    "CheckpointError",
    "Found",
    "checkpoints",
    "commit",
    "folder_for",
    "local_rank",
    "newest",
    "progress",
    "rank",
    "role",
    "save",
    "world_size",
]
