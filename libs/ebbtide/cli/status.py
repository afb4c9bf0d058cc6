"""``ebb status``: the platform of this machine at a glance, also when it is down."""

import argparse
import http.client
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from ebbtide.cli.exits import UNAVAILABLE

MODULE = "ebbtide.allinone.status"
ASK_TIMEOUT_S = 5.0
Facts = dict[str, object]


def _local(home: Path | None) -> Facts:
    command = [sys.executable, "-m", MODULE]
    if home is not None:
        command += ["--home", str(home.absolute())]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)  # noqa: S603
    facts: Facts = json.loads(done.stdout)
    return facts


def _token(home: str) -> str:
    named = os.environ.get("EBB_TOKEN")
    if named:
        return named
    try:
        return (Path(home) / "secrets" / "admin.token").read_text().strip()
    except OSError:
        return ""


def _ask(url: str, token: str) -> Facts | None:
    """Ask the HTTP interface; None when it does not answer or does not know the token."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(
        address.hostname or "", address.port, timeout=ASK_TIMEOUT_S
    )
    try:
        connection.request("GET", "/v1/status", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        facts: Facts | None = json.loads(answer.read()) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    else:
        return facts
    finally:
        connection.close()


def _row(name: str, text: object) -> None:
    sys.stdout.write(f"{name:<10} {text}\n")


def _show(facts: Facts) -> None:
    state = "up" if facts["answers"] else "starting" if facts.get("supervisor") else "down"
    _row("platform", f"{state}  {facts.get('url', '')}".rstrip())
    _row("home", facts["home"])
    if facts.get("error"):
        _row("error", facts["error"])
    processes = facts.get("processes")
    if isinstance(processes, dict) and processes:
        _row("processes", ", ".join(f"{n} {pid or 'ended'}" for n, pid in processes.items()))
    platform = facts.get("platform")
    if isinstance(platform, dict):
        _row("log", f"epoch {platform['epoch']}, {platform['head']} events")
        nodes = [f"{node['name']} {node['reachability']}" for node in platform["nodes"]]
        _row("nodes", ", ".join(nodes) or "none")
        jobs = [f"{count} {phase}" for phase, count in platform["jobs"].items() if count]
        _row("jobs", ", ".join(jobs) or "none")
    elif facts["answers"]:
        _row("hint", "the platform answers, but not to this token; see EBB_TOKEN")
    elif not facts.get("supervisor"):
        _row("hint", "start it with: ebb up")


def main(argv: list[str]) -> int:
    """Show the platform; 0 when it answers, 5 when it does not."""
    parser = argparse.ArgumentParser(prog="ebb status", description="The platform at a glance.")
    parser.add_argument("--home", type=Path, metavar="DIR", help="where all state is kept")
    parser.add_argument("--json", action="store_true", help="print facts for programs")
    given = parser.parse_args(argv)
    facts = _local(given.home)
    if facts["answers"]:
        facts["platform"] = _ask(str(facts["url"]), _token(str(facts["home"])))
    if given.json:
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        _show(facts)
    return 0 if facts["answers"] else UNAVAILABLE
