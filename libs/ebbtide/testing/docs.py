"""Writes the documents that are made from the code: ``python -m ebbtide.testing.docs``.

A tidy test compares them with what is checked in, so that they cannot drift.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import msgspec

from ebbtide.api.schema import openapi
from ebbtide.contracts.authors import AUTHORS
from ebbtide.contracts.events import (
    CheckpointEvent,
    JobEvent,
    NodeEvent,
    PoolEvent,
    QuotaEvent,
    TokenEvent,
    WorkerEvent,
    tag_of,
)

NOUNS = {
    "Jobs": (JobEvent, "job-<job>"),
    "Workers": (WorkerEvent, "workers-<job>"),
    "Checkpoints": (CheckpointEvent, "checkpoint-<job>"),
    "Pools": (PoolEvent, "pool-<pool>"),
    "Nodes": (NodeEvent, "node-<number>"),
    "Quotas": (QuotaEvent, "quota-<cell>"),
    "Tokens": (TokenEvent, "token-<id>"),
}


def events() -> str:
    """Write EVENTS.md: every event, its stream, its author, its meaning and its fields."""
    lines = [
        "# Events",
        "",
        "Made from the code by `python -m ebbtide.testing.docs`; do not edit.",
        "",
        "Every event is one line of the log, said by the one service named. The envelope",
        "(`ebbtide.contracts.envelope.Recorded`) adds epoch, position, stream, version, event id,",
        "time, workspace, actor, cause, the position read to, the rules and the trace.",
    ]
    for noun, (union, stream) in NOUNS.items():
        lines += ["", f"## {noun} (`{stream}`)"]
        for kind in get_args(union) or (union,):
            lines += _event(kind)
    return "\n".join(lines) + "\n"


def _event(kind: type[msgspec.Struct]) -> list[str]:
    doc = " ".join((kind.__doc__ or "").split()).replace("``", "`")
    doc = doc.replace(f" ({AUTHORS[tag_of(kind)]}).", ".")
    lines = ["", f"### `{tag_of(kind)}`", "", f"Author: **{AUTHORS[tag_of(kind)]}**. {doc}", ""]
    for field in msgspec.structs.fields(kind):
        needed = "" if field.required else ", may be left out"
        lines.append(f"- `{field.name}`: `{_type(field.type)}`{needed}")
    return lines


def _type(annotation: object) -> str:
    name = getattr(annotation, "__supertype__", None)
    if name is not None or isinstance(annotation, type):
        return getattr(annotation, "__name__", str(annotation))
    return str(annotation).replace("typing.", "").replace("ebbtide.contracts.", "")


def http() -> str:
    """Write openapi.json: the HTTP interface."""
    return openapi().decode()


DOCUMENTS: dict[str, Callable[[], str]] = {"docs/EVENTS.md": events, "docs/openapi.json": http}


def main(root: Path) -> None:
    """Write every document below ``root``."""
    for path, write in DOCUMENTS.items():
        (root / path).write_text(write())


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
