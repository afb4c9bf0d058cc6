"""Where SQL comes from: files with named blocks, so that none is ever built from strings.

A block starts with a line ``-- name: <word>`` and ends where the next one starts.
"""

import re
from collections.abc import Mapping
from importlib.resources import files

_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)


def load(package: str, file: str = "queries.sql") -> Mapping[str, str]:
    """Read the named blocks of a file that lies in ``package``."""
    return blocks((files(package) / file).read_text(encoding="utf-8"))


def blocks(text: str) -> dict[str, str]:
    """Split ``text`` into its named blocks.

    Raises:
        ValueError: a name is given twice.
    """
    _, *pieces = _NAME.split(text)
    found: dict[str, str] = {}
    for name, block in zip(pieces[::2], pieces[1::2], strict=True):
        if name in found:
            raise ValueError(f"two SQL blocks are named {name}")
        found[name] = block.strip()
    return found
