"""Says what runs of an embedded platform, from its home alone.

``python -m ebbtide.allinone.status`` works when everything is down, and starts nothing. Writes one
line of JSON.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from ebbtide.allinone.child import read_identity
from ebbtide.allinone.home import Home, HomeError, default_home
from ebbtide.allinone.supervisor import health


def status(home: Home) -> dict[str, object]:
    """Tell the home, the address, whether it answers, and which processes live."""
    kept = home.load()
    supervisor = read_identity(home.pid_file("supervisor"))
    processes = {}
    for path in sorted(home.run.glob("*.pid")):
        identity = read_identity(path)
        if path.stem != "supervisor":
            processes[path.stem] = identity.pid if identity is not None else None
    return {
        "home": str(home.folder),
        "known": kept is not None,
        "supervisor": supervisor.pid if supervisor is not None else None,
        "answers": kept is not None and health(kept.api_port),
        "url": kept.url if kept is not None else "",
        "nodes": kept.nodes if kept is not None else 0,
        "split": kept.split if kept is not None else False,
        "processes": processes,
    }


def main(argv: list[str]) -> int:
    """Write what runs; 0 when the platform answers, 5 when it does not."""
    parser = argparse.ArgumentParser(prog="ebbtide.allinone.status", description="What runs.")
    parser.add_argument("--home", type=Path, help="folder of all state (EBB_HOME)")
    given = parser.parse_args(argv)
    home = Home(given.home.absolute() if given.home else default_home(os.environ))
    try:
        facts = status(home)
    except HomeError as error:
        facts = {"home": str(home.folder), "known": False, "answers": False, "error": str(error)}
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0 if facts["answers"] else 5


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
