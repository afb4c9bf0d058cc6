"""Where a script runs: read from the environment each time, with defaults for a run by hand."""

import os
from pathlib import Path


def rank() -> int:
    """Give this process's rank in the gang."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """Give the number of ranks in the gang."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_rank() -> int:
    """Give this process's rank among those of its worker."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def role() -> str:
    """Name the role of this worker."""
    return os.environ.get("EBB_ROLE", "worker")


def checkpoints() -> Path:
    """Name the folder of the job's checkpoints: shared by its workers and all its attempts."""
    return Path(os.environ.get("EBB_CHECKPOINTS") or "checkpoints")


def life() -> tuple[int, int, int]:
    """Give epoch, attempt and round: what tells this life of the job from every other."""
    return (
        int(os.environ.get("EBB_EPOCH", "1")),
        int(os.environ.get("EBB_ATTEMPT", "1")),
        int(os.environ.get("EBB_ROUND", "1")),
    )
