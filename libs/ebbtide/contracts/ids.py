"""Typed ids and how they are written.

Pure: the caller gives time and randomness. An id carries its cell, so that nothing may assume that
a cell is the only one: ``job_<cell>_<26 characters of Crockford base 32>`` (the ULID layout: 48
bits of milliseconds, 80 random bits), sortable by the time it was made.
"""

import re
from typing import NewType

JobId = NewType("JobId", str)
NodeName = NewType("NodeName", str)
NodeNumber = NewType("NodeNumber", int)
PoolName = NewType("PoolName", str)
QuotaName = NewType("QuotaName", str)
Workspace = NewType("Workspace", str)
PlacementId = NewType("PlacementId", str)
TokenId = NewType("TokenId", str)

RANDOM_BYTES = 10
"""How many random bytes an id takes."""

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_BODY = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""What people may call a job, a node, a pool, a quota, a workspace or a cell."""


def ulid(millis: int, randomness: bytes) -> str:
    """Write 48 bits of ``millis`` and 80 bits of ``randomness`` as 26 characters."""
    if len(randomness) != RANDOM_BYTES:
        raise ValueError(f"an id takes {RANDOM_BYTES} random bytes, not {len(randomness)}")
    value = ((millis & (1 << 48) - 1) << 80) | int.from_bytes(randomness)
    return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))


def job_id(cell: str, millis: int, randomness: bytes) -> JobId:
    """Make the id of a new job; the submitter makes it, so that a retry is safe."""
    return JobId(f"job_{cell}_{ulid(millis, randomness)}")


def is_job_id(text: str, cell: str) -> bool:
    """Say whether ``text`` is a well-formed job id of ``cell``."""
    prefix = f"job_{cell}_"
    return text.startswith(prefix) and _BODY.fullmatch(text, len(prefix)) is not None


def placement_id(job: JobId, attempt: int) -> PlacementId:
    """Derive the id of the placement made for ``attempt``.

    New streams and things derive from causes.
    """
    return PlacementId(f"{job}.{attempt}")


def is_name(text: str) -> bool:
    """Say whether ``text`` may name a thing.

    Lower-case letters, digits and inner dashes, 1 to 63.
    """
    return NAME.fullmatch(text) is not None
