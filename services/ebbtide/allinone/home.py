"""The home folder of an embedded platform: layout, ports and secrets, chosen once and kept.

All state of a platform lies here, so two homes on one machine do not meet. Secrets are made here,
in files that nobody else can read; they are handed on by path or by environment, never by argument.
No existing folder's rights are changed. Standard library only: the supervisor lives with this.
"""

import fcntl
import json
import os
import random
import secrets
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

LOOPBACK = "127.0.0.1"
# Below the range from which the kernel takes outgoing ports, so that a kept port is not lent out
# meanwhile.
FIRST_PORT = 20_000
LAST_PORT = 30_000
PORT_TRIES = 200
TOKEN_ID_BYTES = 8
SECRET_BYTES = 24
FOLDERS = ("nats", "store", "nodes", "run", "log")


class HomeError(Exception):
    """The home cannot be used; the text says what to do."""


class Platform(NamedTuple):
    """What was chosen at the first start; ``started``: a platform once ran with these ports."""

    cell: str
    api_port: int
    postgres_port: int
    nats_port: int
    nodes: int = 1
    capacity: str = ""
    split: bool = False
    started: bool = False

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes that this machine plays."""
        return tuple(f"node-{number}" for number in range(1, self.nodes + 1))

    @property
    def url(self) -> str:
        """Where the HTTP interface listens."""
        return f"http://{LOOPBACK}:{self.api_port}"


def default_home(environ: Mapping[str, str]) -> Path:
    """Give the folder to use: ``EBB_HOME``, else one that fits who is asking."""
    named = environ.get("EBB_HOME")
    if named:
        return Path(named).absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/ebbtide")
    return Path.home() / ".local" / "share" / "ebbtide"


def is_free(port: int) -> bool:
    """Say whether a server could listen on a loopback port now."""
    with socket.socket() as probe:
        # As servers do, so that connections of a past server that are still fading do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port(taken: Sequence[int] = ()) -> int:
    """Choose a free loopback port that is none of ``taken``.

    Raises:
        HomeError: none was found.
    """
    for _ in range(PORT_TRIES):
        port = random.SystemRandom().randrange(FIRST_PORT, LAST_PORT)
        if port not in taken and is_free(port):
            return port
    raise HomeError(
        f"no free port between {FIRST_PORT} and {LAST_PORT}; end some servers on this machine"
    )


def make_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, as a whole or not at all."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class Home:
    """Paths of one home, and what is kept in its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secrets = folder / "secrets"
        self.postgres = folder / "postgres"
        self.nats = folder / "nats"
        self.store = folder / "store"
        self.nodes = folder / "nodes"
        self.run = folder / "run"
        self.logs = folder / "log"
        self.issuer_seed = self.secrets / "issuer.seed"
        self.issuer_public = self.secrets / "issuer.public"
        self._platform = folder / "platform.json"

    def create(self) -> None:
        """Make what is missing of the layout. Folders that exist keep the rights they have.

        Raises:
            HomeError: the folder cannot be made or written.
        """
        try:
            if not self.folder.is_dir():
                self.folder.mkdir(parents=True)
                # Root's Postgres runs as another user, who must pass through here but read nothing.
                self.folder.chmod(0o711 if os.geteuid() == 0 else 0o700)
            if not self.secrets.is_dir():
                self.secrets.mkdir(mode=0o700)
            for name in FOLDERS:
                (self.folder / name).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise HomeError(
                f"{self.folder} cannot be used: {error.strerror}; choose another --home"
            ) from error

    def lock(self) -> int | None:
        """Become the one supervisor of this home: give the lock, None when another holds it."""
        descriptor = os.open(
            self.run / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def pid_file(self, name: str) -> Path:
        """Where the identity of a process of ours is kept."""
        return self.run / f"{name}.pid"

    def load(self) -> Platform | None:
        """Read what was chosen; None before the first start.

        Raises:
            HomeError: the file is there but damaged.
        """
        try:
            text = self._platform.read_text()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise HomeError(f"{self._platform} cannot be read: {error.strerror}") from error
        try:
            kept = json.loads(text)
            return Platform(**{name: kept[name] for name in Platform._fields if name in kept})
        except (ValueError, TypeError) as error:
            raise HomeError(
                f"{self._platform} is damaged ({error}); restore it, or choose another --home"
            ) from error

    def save(self, platform: Platform) -> None:
        """Keep what was chosen, with the address of the HTTP interface for clients to read."""
        make_private(
            self._platform, json.dumps({**platform._asdict(), "url": platform.url}, indent=2) + "\n"
        )

    def secret(self, name: str) -> str:
        """Give the named secret, made when it is first asked for."""
        path = self.secrets / name
        if not path.exists():
            make_private(path, secrets.token_urlsafe(SECRET_BYTES))
        return path.read_text().strip()

    def token(self, name: str, kind: str) -> str:
        """Give the credential kept in ``<name>.token``, made when it is first asked for."""
        path = self.secrets / f"{name}.token"
        if not path.exists():
            identifier, secret = secrets.token_hex(TOKEN_ID_BYTES), secrets.token_hex(SECRET_BYTES)
            make_private(path, f"ebb_{kind}_{identifier}_{secret}\n")
        return path.read_text().strip()

    def node_token(self, node: str) -> str:
        """Give the credential with which the agent of ``node`` speaks on the bus."""
        return self.token(f"agent-{node}", "agent")


def choose(kept: Platform | None, cell: str) -> Platform:
    """Give the platform to start: the kept one, with new ports as long as it has never run."""
    if kept is not None and kept.started:
        return kept
    ports: list[int] = []
    for _ in range(3):
        ports.append(free_port(ports))
    api, postgres, nats = ports
    fresh = Platform(cell=cell, api_port=api, postgres_port=postgres, nats_port=nats)
    return (
        fresh
        if kept is None
        else fresh._replace(cell=kept.cell, nodes=kept.nodes, capacity=kept.capacity)
    )


def require_free(ports: Mapping[str, int], home: Home) -> None:
    """Make sure that kept ports are still ours to use.

    Raises:
        HomeError: somebody else listens there. Clients know the port, so none is chosen anew.
    """
    for name, port in ports.items():
        if not is_free(port):
            raise HomeError(
                f"port {port} of {LOOPBACK}, kept for {name}, is taken by another program; "
                f"end that program, or change {name}_port in {home.folder / 'platform.json'}"
            )
