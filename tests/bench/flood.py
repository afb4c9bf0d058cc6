"""Submits as fast as the door takes them: raw sockets, requests made beforehand."""

import contextlib
import json
import os
import socket
import threading
import time
from urllib.parse import urlsplit

from tests.bench.ground import Running

from ebbtide.contracts.ids import RANDOM_BYTES, job_id


def flood(running: Running, connections: int, seconds: float) -> tuple[int, list[float]]:
    """Submit on ``connections`` for ``seconds``; give the count and the latencies in ms.

    The jobs ask for more than the node has free, so they wait: what is measured is the door.
    """
    facts = json.loads((running.home / "platform.json").read_text())
    token = (running.home / "secrets" / "admin.token").read_text().strip()
    address = urlsplit(facts["url"])
    until = time.monotonic() + seconds
    waits: list[list[float]] = [[] for _ in range(connections)]

    def lane(number: int) -> None:
        with contextlib.closing(
            socket.create_connection((address.hostname, address.port))
        ) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while time.monotonic() < until:
                request = _request(token, running.client.cell)
                began = time.perf_counter()
                connection.sendall(request)
                answer = _answer(connection)
                if not answer.startswith(b"HTTP/1.1 201"):
                    raise RuntimeError(answer[:400])
                waits[number].append((time.perf_counter() - began) * 1e3)

    threads = [threading.Thread(target=lane, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = [wait for lane_waits in waits for wait in lane_waits]
    return len(every), every


def _answer(connection: socket.socket) -> bytes:
    """Read one answer whole: head and body may come apart."""
    answer = b""
    while True:
        answer += connection.recv(65536)
        head, found, body = answer.partition(b"\r\n\r\n")
        if found:
            size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            if len(body) >= size:
                return answer


def _request(token: str, cell: str) -> bytes:
    name = job_id(cell, time.time_ns() // 1_000_000, os.urandom(RANDOM_BYTES))
    body = json.dumps(
        {
            "id": name,
            "job": {
                "name": "flood",
                "command": ["/bin/true"],
                "roles": {"worker": {"resources": {"cpu": "1m", "memory": "1Mi"}}},
            },
        }
    ).encode()
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: ebb\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
