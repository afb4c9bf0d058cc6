"""Speaks to the node's agent at its door: one JSON line each way, on a Unix socket.

The agent may be away for a while (it is started again at once); what must be said is said again
within a bound. Without a platform there is no door, and nothing to say.
"""

import json
import os
import socket
import time
from pathlib import Path

SAY_S = 60.0
"""How long a commit waits for an agent that is away before it gives up."""
PAUSE_S = 0.1
PAUSE_MAX_S = 2.0
TALK_S = 30.0
ANSWER_MAX = 16 * 1024


class Refused(RuntimeError):
    """The agent understood, and said no."""


def is_open() -> bool:
    """Say whether this process runs under an agent."""
    return bool(os.environ.get("EBB_SOCKET") and os.environ.get("EBB_KEY"))


def say(what: str, within_s: float, **facts: object) -> bool:
    """Tell the agent something; False if it could not be reached within ``within_s``.

    Raises:
        Refused: the agent said no.
    """
    line = json.dumps({"key": os.environ["EBB_KEY"], "say": what, **facts}).encode() + b"\n"
    deadline = time.monotonic() + within_s
    pause_s = PAUSE_S
    while True:
        try:
            answer = _talk(line)
        except (OSError, ValueError):
            if time.monotonic() + pause_s > deadline:
                return False
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
            continue
        if not answer.get("ok"):
            raise Refused(str(answer.get("error")))
        return True


def progress(**numbers: float) -> None:
    """Show numbers such as ``step`` or ``loss`` to whoever looks; never waits, never fails."""
    if is_open():
        try:
            say("progress", within_s=0.0, numbers={name: float(n) for name, n in numbers.items()})
        except Refused:
            return


def _talk(line: bytes) -> dict[str, object]:
    path = Path(os.environ["EBB_SOCKET"])
    # By way of the folder's descriptor: a socket's path may have 107 bytes, a state folder's more.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as talk:
            talk.settimeout(TALK_S)
            talk.connect(f"/proc/self/fd/{folder}/{path.name}")
            talk.sendall(line)
            answer = b""
            while not answer.endswith(b"\n"):
                piece = talk.recv(ANSWER_MAX)
                if not piece or len(answer) > ANSWER_MAX:
                    raise ValueError("the agent went away before it answered")
                answer += piece
    finally:
        os.close(folder)
    read: dict[str, object] = json.loads(answer)
    return read
