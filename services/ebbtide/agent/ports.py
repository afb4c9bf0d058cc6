"""Ports for rendezvous: bound by the agent until their worker starts, and not used again soon.

Several agents may share a machine, so a port is also reserved under a name of the kernel's (an
abstract socket, gone with its process) for as long as its attempt lives. The range lies below the
one from which the kernel gives ports to outgoing connections: nobody gets one of ours by chance.
"""

import hashlib
import os
import socket
from pathlib import Path
from typing import Protocol

from ebbtide.contracts.errors import Unavailable

LOWEST = 20_000
DEFAULT_EPHEMERAL = 32_768
_WIDTH = 8


class Rendezvous(Protocol):
    """Ports as a supervisor needs them; a simulated machine has no sockets."""

    def take(self) -> int:
        """Hold a free port."""
        ...

    def claim(self, port: int) -> None:
        """Hold a port that was promised before this agent's restart."""
        ...

    def reserve(self, port: int) -> None:
        """Keep others off a port that a running worker uses."""
        ...

    def let_bind(self, port: int) -> None:
        """Make way for the worker."""
        ...

    def release(self, port: int) -> None:
        """Give a port back."""
        ...


class Ports:
    """The node's ports; the cursor rotates and survives restarts."""

    def __init__(self, cursor: Path, ephemeral: int) -> None:
        self._highest = max(LOWEST + 1, ephemeral)
        self._fd = os.open(cursor, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        kept = os.read(self._fd, _WIDTH).strip()
        first = int.from_bytes(hashlib.blake2b(str(cursor).encode(), digest_size=4).digest())
        self._next = int(kept) if kept.isdigit() else LOWEST + first % (self._highest - LOWEST)
        self._names: dict[int, socket.socket] = {}
        self._bound: dict[int, socket.socket] = {}

    def take(self) -> int:
        """Bind and reserve a free port.

        Raises:
            Unavailable: there is none.
        """
        for _ in range(self._highest - LOWEST):
            port = self._next if LOWEST <= self._next < self._highest else LOWEST
            self._next = port + 1
            if not self._reserve(port):
                continue  # ours already, or another agent's: not to be given back here
            if self._bind(port):
                os.pwrite(self._fd, b"%-8d" % self._next, 0)
                return port
            self.release(port)
        raise Unavailable(f"no free port from {LOWEST} to {self._highest - 1}")

    def claim(self, port: int) -> None:
        """Hold a port that was promised before this agent's restart, as far as that can be done."""
        if port and self._reserve(port):
            self._bind(port)

    def reserve(self, port: int) -> None:
        """Keep others off a port that a running worker uses."""
        if port:
            self._reserve(port)

    def _reserve(self, port: int) -> bool:
        if port in self._names:
            return False
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name.bind(f"\0ebbtide-port-{port}")
        except OSError:
            name.close()
            return False
        self._names[port] = name
        return True

    def _bind(self, port: int) -> bool:
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            held.bind(("", port))
        except OSError:
            held.close()
            return False
        self._bound[port] = held
        return True

    def let_bind(self, port: int) -> None:
        """Make way for the worker, which binds the port itself; the reservation stays."""
        held = self._bound.pop(port, None)
        if held:
            held.close()

    def release(self, port: int) -> None:
        """Give a port back."""
        self.let_bind(port)
        name = self._names.pop(port, None)
        if name:
            name.close()

    def close(self) -> None:
        """Give everything back."""
        for port in [*self._names, *self._bound]:
            self.release(port)
        os.close(self._fd)


def ephemeral_start(text: str) -> int:
    """Read where the kernel's own range begins from the text of ip_local_port_range."""
    words = text.split()
    return int(words[0]) if words and words[0].isdigit() else DEFAULT_EPHEMERAL
