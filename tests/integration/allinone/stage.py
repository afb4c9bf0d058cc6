"""A supervisor over a few small real programs; run by the tests as a process of its own.

``python stage.py HOME PORT MODE``: with MODE ``answers`` one service answers on /health, with
``breaks`` it ends at once; a node's parts outlive the supervisor. Writes ``ready`` or the error.
"""

import os
import sys
from pathlib import Path

from ebbtide.allinone.child import Child
from ebbtide.allinone.home import Home
from ebbtide.allinone.plan import AGENT, KEEPER, SERVER, SERVICE, Part
from ebbtide.allinone.supervisor import StartError, Supervisor

ANSWER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def part(home: Home, name: str, stage: int, *argv: str) -> Part:
    """Make a part out of a program."""
    child = Child(
        name,
        argv,
        dict(os.environ),
        home.logs / f"{name}.log",
        bound=stage not in (AGENT, KEEPER),
        stop_s=5.0,
    )
    return Part(name, stage, lambda: child)


def main(folder: str, port: str, mode: str) -> int:
    """Supervise until told to stop."""
    home = Home(Path(folder))
    home.create()
    if home.lock() is None:
        print("locked", flush=True)
        return 1
    supervisor = Supervisor(home, int(port), lambda: print("ready", flush=True))
    supervisor.add(part(home, "server", SERVER, "sleep", "600"))
    program = ANSWER if mode == "answers" else "raise SystemExit('broken on purpose')"
    supervisor.add(part(home, "service", SERVICE, sys.executable, "-c", program, port))
    supervisor.add_when_ready(
        part(home, "keeper-node-1", KEEPER, "sleep", "600"),
        part(home, "agent-node-1", AGENT, "sleep", "600"),
    )
    try:
        supervisor.run()
    except StartError as error:
        print(error, flush=True)
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
