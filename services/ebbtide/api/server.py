"""The HTTP server as a part of a process: uvicorn inside the process's own loop.

The process owns signals, so uvicorn gets none; the socket is bound before the process says that
it is ready, and requests are answered once the door has read what the log holds.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from ebbtide.api.boot import bootstrap
from ebbtide.api.door import Door
from ebbtide.api.http import application
from ebbtide.api.protocol import Connection
from ebbtide.api.settings import Settings
from ebbtide.contracts.errors import Malformed, Rejected, Unavailable

CONNECTIONS_MAX = 4096
BACKLOG = 1024
KEEP_ALIVE_S = 75
SHUTDOWN_S = 3
CATCH_UP_S = 30.0


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process."""
        yield


class HttpServer:
    """Serves the door over HTTP on one address."""

    name = "api.http"

    def __init__(self, door: Door, settings: Settings, on_ready: Callable[[], None]) -> None:
        self.door = door
        self._settings = settings
        self._on_ready = on_ready
        self._socket: socket.socket | None = None
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """Give the port that is listened on, once started."""
        return int(self._socket.getsockname()[1]) if self._socket is not None else 0

    async def start(self) -> None:
        """Bind the address and make the application."""
        config = uvicorn.Config(
            application(self.door),
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
        self._server = _Server(config)
        self._socket = bind(self._settings.host, self._settings.port)

    async def run(self) -> None:
        """Make the tokens known that the platform was set up with, then answer until cancelled."""
        if self._server is None or self._socket is None:
            raise RuntimeError("start() comes first")
        position = await bootstrap(self.door, self._settings.bootstrap_tokens)
        await self.door.source.reached(position, CATCH_UP_S)
        self._on_ready()
        # A task of its own: a cancelled run() must not cut answers off that stop() lets finish.
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        await asyncio.shield(self._serving)

    async def stop(self) -> None:
        """Take no new connections, let answers finish within a bound, and end streams."""
        self.door.feed.close()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.wait({self._serving}, timeout=SHUTDOWN_S + 1)
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()


def bind(host: str, port: int) -> socket.socket:
    """Take an address to listen on.

    Raises:
        Unavailable: somebody else has it just now.
        Malformed: it can never be ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:  # by one that is about to end, most often
            raise Unavailable(f"another program listens on {host}:{port}") from error
        raise Malformed(
            Rejected(
                code="settings",
                field="EBB_API_PORT",
                detail=f"{host}:{port} cannot be bound: {error.strerror}",
                hint="choose an address of this machine, and a port that is yours to use",
            )
        ) from error
    bound.setblocking(False)
    return bound
