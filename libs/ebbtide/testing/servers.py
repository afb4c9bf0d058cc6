"""Real servers for tests, wherever they come from: named, in containers, or local binaries.

Each process of a test run has one Postgres and one NATS, so workers of xdist never meet; each test
has a database and a cell of its own. A test that must kill or stop a server asks for a private one.
Nothing here may be imported by product code.
"""

import asyncio
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from ebbtide.allinone.child import Child, launch
from ebbtide.allinone.home import free_port
from ebbtide.allinone.nats import Callout, Nats
from ebbtide.allinone.postgres import Postgres

if TYPE_CHECKING:
    from testcontainers.nats import NatsContainer
    from testcontainers.postgres import PostgresContainer

T = TypeVar("T")
# Tests look for errors of ours, not of the disk: a machine that loses power loses its tests anyway.
TEST_SETTINGS: Mapping[str, str] = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
}
DOCKER_PING_TIMEOUT_S = 2.0
CONNECT_TIMEOUT_S = 15.0


def wait_until_dead(pid: int, timeout_s: float = 10.0) -> None:
    """Return once no process has the number ``pid``."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        if not poller.poll(timeout_s * 1000):
            raise TimeoutError(f"process {pid} lives on after {timeout_s} s")
    finally:
        os.close(descriptor)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a thread with a loop of its own: the caller may have one running."""
    box: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            box.append(asyncio.run(work()))
        except BaseException as error:  # noqa: BLE001 - handed to the caller below
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return box[0]


@contextmanager
def server_folder() -> Iterator[Path]:
    """Give a fresh folder that a server's unprivileged user may pass through; removed at the end.

    The folders that pytest makes are closed to others when root runs the tests.
    """
    folder = Path(tempfile.gettempdir()) / f"ebbtide-{secrets.token_hex(6)}"
    folder.mkdir()
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Process:
    """A server that a test may stop, kill, freeze and start again."""

    def __init__(
        self, prepare: Callable[[], Child], ready: Callable[[subprocess.Popen[bytes]], None]
    ) -> None:
        self._prepare = prepare
        self._ready = ready
        self._popen: subprocess.Popen[bytes] | None = None
        self._child: Child | None = None

    @property
    def pid(self) -> int:
        """Number of the running server."""
        if self._popen is None:
            raise RuntimeError("the server is not running")
        return self._popen.pid

    def start(self) -> None:
        """Start and wait until it takes connections."""
        self._child = self._prepare()
        self._popen = launch(self._child)
        self._ready(self._popen)

    def signal(self, number: int) -> None:
        """Send a signal: SIGSTOP and SIGCONT make it deaf for a while."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it without warning, as a crash does, and return once none of its processes is left.

        One of Postgres's may answer a last call before it sees that its parent is dead.
        """
        if self._popen is not None:
            children = _children(self._popen.pid)
            self._popen.send_signal(signal.SIGKILL)
            self._popen.wait()
            self._popen = None
            for child in children:
                wait_until_dead(child)

    def stop(self) -> None:
        """End it in order."""
        if self._popen is None or self._child is None:
            return
        self._popen.send_signal(self._child.stop_signal)
        self._popen.wait(self._child.stop_s)
        self._popen = None


class PostgresServer(Process):
    """A private Postgres on local binaries."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.postgres = Postgres(
            folder / "postgres",
            free_port(),
            secrets.token_urlsafe(12),
            {**TEST_SETTINGS, **(settings or {})},
        )
        self._log = folder / "postgres.log"
        super().__init__(
            self._prepare_postgres, lambda popen: self.postgres.wait_ready(popen.pid, popen)
        )

    def _prepare_postgres(self) -> Child:
        self.postgres.prepare(os.environ, self._log)
        return self.postgres.child(os.environ, self._log)

    @property
    def url(self) -> str:
        """Address with credentials of the superuser."""
        return self.postgres.url


class NatsServer(Process):
    """A private NATS server on the local binary."""

    def __init__(self, folder: Path, callout: Callout | None = None) -> None:
        self.nats = Nats(folder / "nats", free_port(), secrets.token_urlsafe(12), callout)
        super().__init__(
            lambda: self.nats.child(os.environ, folder / "nats.log"),
            self.nats.wait_ready,
        )

    @property
    def url(self) -> str:
        """Address with the services' credentials."""
        return self.nats.url


def docker_answers(environ: Mapping[str, str]) -> bool:
    """Say whether a Docker daemon answers; cheap, so that most runs never import its client."""
    address = environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not address.startswith("unix://"):
        return bool(environ.get("DOCKER_HOST"))
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DOCKER_PING_TIMEOUT_S)
            connection.connect(address.removeprefix("unix://"))
            connection.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            return b" 200 " in connection.recv(64)
    except OSError:
        return False


class Container(Protocol):
    """What is used of a container of testcontainers."""

    def start(self) -> object:
        """Start it and wait until its server answers."""
        ...

    def stop(self) -> object:
        """Remove it."""
        ...


C = TypeVar("C", bound=Container)


def _started(make: Callable[[], C]) -> C | None:
    """Start a container; a daemon that cannot get the image is as good as none."""
    with warnings.catch_warnings():
        # Warnings of a library that few runs reach must not be what breaks them.
        warnings.simplefilter("ignore")
        try:
            container = make()
            container.start()
        except Exception:  # noqa: BLE001 - whatever ails Docker, local binaries are there
            return None
    return container


def _postgres_container() -> "PostgresContainer":
    from testcontainers.postgres import PostgresContainer

    return PostgresContainer("postgres:18", driver=None)


def _nats_container() -> "NatsContainer":
    from testcontainers.nats import NatsContainer

    return NatsContainer("nats:2", jetstream=True)


@contextmanager
def postgres_for_tests(environ: Mapping[str, str]) -> Iterator[str]:
    """Give the address of a Postgres in which databases may be made: named, in Docker, or local."""
    named = environ.get("EBB_TEST_DATABASE_URL")
    if named:
        yield named
        return
    container = _started(_postgres_container) if docker_answers(environ) else None
    if container is not None:
        yield container.get_connection_url()
        container.stop()
        return
    with server_folder() as folder:
        server = PostgresServer(folder)
        server.start()
        try:
            yield server.url
        finally:
            server.kill()


@contextmanager
def nats_for_tests(environ: Mapping[str, str]) -> Iterator[str]:
    """Give the address of a NATS server with JetStream: named, in Docker, or local."""
    named = environ.get("EBB_TEST_NATS_URL")
    if named:
        yield named
        return
    container = _started(_nats_container) if docker_answers(environ) else None
    if container is not None:
        yield container.nats_uri()
        container.stop()
        return
    with server_folder() as folder:
        server = NatsServer(folder)
        server.start()
        try:
            yield server.url
        finally:
            server.kill()


def _execute(url: str, statement: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(url, timeout=CONNECT_TIMEOUT_S)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    apart(run)


@contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """Make a database with a name of its own; dropped at the end, with whoever uses it."""
    name = f"test_{secrets.token_hex(8)}"
    _execute(server_url, f"CREATE DATABASE {name}")
    try:
        yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    finally:
        _execute(server_url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
