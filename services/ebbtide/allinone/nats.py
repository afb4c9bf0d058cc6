"""The embedded NATS server: where its program comes from, its configuration, how it is started.

It listens on the loopback address only and lets nobody in without a password. Secrets stand in the
configuration file, which nobody else can read, and never in an argument vector.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from ebbtide.allinone.child import SEARCH_PATH, Child

SERVICES = "services"
SYSTEM = "system"
PROGRAM = "nats-server"
START_TIMEOUT_S = 60.0
SYSTEM_MAY = ("PING", "*.CONNZ", "*.KICK")
# Who connects while nobody answers for tokens is held this long, also when the server shall end.
AUTH_TIMEOUT_S = 2
# Bodies of events are at most 64 KiB; desired state of a node with many attempts is the largest
# message.
MAX_PAYLOAD_BYTES = 8 * 2**20
# The Go run-time takes what it is given: these keep the idle set small at no cost that was
# measured.
TUNING: Mapping[str, str] = {"GOMAXPROCS": "1", "GOMEMLIMIT": "48MiB", "GOGC": "50"}


class NatsUnusableError(Exception):
    """The server cannot be run here; the text says what to do."""


class Callout(NamedTuple):
    """Who answers for tokens: whoever signs with the seed of ``issuer``, a public key.

    With ``system_password`` they may also end the connection of a token that was revoked.
    """

    issuer: str
    system_password: str


def program(environ: Mapping[str, str]) -> Path:
    """Find the server: the one the user names, the environment's own, or one in the search path."""
    named = environ.get("EBB_NATS_BIN")
    candidates = (
        [named]
        if named
        else [str(Path(sysconfig.get_path("scripts")) / PROGRAM), shutil.which(PROGRAM)]
    )
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            return Path(candidate)
    raise NatsUnusableError(
        f"there is no {named or PROGRAM}; run the set-up again, "
        "or set EBB_NATS_BIN to the program, "
        "or EBB_NATS_URL to a server"
    )


def make_issuer() -> tuple[str, str]:
    """Make the key pair that signs for tokens: seed and public key.

    Imports a library that the supervisor must not keep in memory: call it in a fork.
    """
    import nkeys

    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_ACCOUNT)
    public = nkeys.from_seed(bytearray(seed)).public_key
    return seed.decode(), public.decode()


class Nats:
    """One server: its folder, port and password; ``callout`` lets others than services in."""

    def __init__(
        self, folder: Path, port: int, password: str, callout: Callout | None = None
    ) -> None:
        self.folder = folder
        self.port = port
        self.password = password
        self.callout = callout

    @property
    def url(self) -> str:
        """Address with the services' credentials; must not be printed."""
        return self._url(SERVICES, self.password)

    @property
    def system_url(self) -> str:
        """Address with the credentials that end connections; must not be printed."""
        return self._url(SYSTEM, self.callout.system_password) if self.callout is not None else ""

    def _url(self, user: str, password: str) -> str:
        return f"nats://{user}:{quote(password, safe='')}@127.0.0.1:{self.port}"

    def child(self, environ: Mapping[str, str], log: Path) -> Child:
        """Write the configuration and say how to start the server."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        conf = self.folder / "nats.conf"
        temporary = self.folder / "nats.conf.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(render_config(self))
        temporary.replace(conf)
        return Child(
            name="nats",
            argv=(str(program(environ)), "-c", str(conf)),
            env={"PATH": SEARCH_PATH, **TUNING},
            log=log,
            # SIGTERM ends at once after the store is synced; clients reconnect by themselves.
            stop_signal=signal.SIGTERM,
            stop_s=15.0,
        )

    def is_ready(self) -> bool:
        """Say whether the server greets who connects."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                return connection.recv(5) == b"INFO "
        except OSError:
            return False

    def wait_ready(
        self, alive: "subprocess.Popen[bytes]", timeout_s: float = START_TIMEOUT_S
    ) -> None:
        """Block until the server takes connections.

        Raises:
            NatsUnusableError: it ended or did not get ready in time.
        """
        deadline = time.monotonic() + timeout_s
        while not self.is_ready():
            if alive.poll() is not None or time.monotonic() > deadline:
                raise NatsUnusableError(f"NATS in {self.folder} did not start; see its log")
            time.sleep(0.005)


def render_config(nats: Nats) -> str:
    """Render the configuration. Its own two users bypass the call-out; others go there."""
    lines = [
        f"listen: {json.dumps(f'127.0.0.1:{nats.port}')}",
        f"server_name: {json.dumps(f'ebbtide-{nats.port}')}",
        f"max_payload: {MAX_PAYLOAD_BYTES}",
        'write_deadline: "10s"',
        "jetstream {",
        f"  store_dir: {json.dumps(str(nats.folder))}",
        "  max_mem: 64MB",
        "}",
        "authorization {",
        f"  users: [{{user: {SERVICES}, password: {json.dumps(nats.password)}}}]",
        f"  timeout: {AUTH_TIMEOUT_S}",
    ]
    if nats.callout is not None:
        lines += [
            "  auth_callout {",
            f"    issuer: {nats.callout.issuer}",
            f"    auth_users: [{SERVICES}, {SYSTEM}]",
            "  }",
            "}",
            "accounts {",
            f"  $SYS {{ users: [{_system_user(nats.callout)}] }}",
        ]
    return "\n".join([*lines, "}", ""])


def _system_user(callout: Callout) -> str:
    """Render who may look for connections of a token and end them, and nothing else."""
    allowed = json.dumps([f"$SYS.REQ.SERVER.{subject}" for subject in SYSTEM_MAY])
    return (
        f"{{user: {SYSTEM}, password: {json.dumps(callout.system_password)}, "
        f"permissions: {{publish: {allowed}, subscribe: [_INBOX.>]}}}}"
    )
