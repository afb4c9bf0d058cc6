"""``ebb version``: says which release this is, without importing anything that takes time."""

import os
import sys

DISTRIBUTION = "ebbtide"


def installed() -> str:
    """Give the version of the installed distribution.

    Read from the name of its record beside the packages: the library that does this properly takes
    longer to import than the whole verb may last.
    """
    prefix, suffix = f"{DISTRIBUTION}-", ".dist-info"
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - pathlib is slow to import
        except OSError:
            continue
        for name in names:
            if name.startswith(prefix) and name.endswith(suffix):
                return name[len(prefix) : -len(suffix)]
    return "unknown"


def main(argv: list[str]) -> int:
    """Print the version; ``--json`` prints it for programs."""
    version = installed()
    if argv == ["--json"]:
        sys.stdout.write(f'{{"version": "{version}"}}\n')
        return 0
    if argv:
        sys.stderr.write("ebb version: takes no argument but --json\n")
        return 2
    sys.stdout.write(f"ebbtide {version}\n")
    return 0
