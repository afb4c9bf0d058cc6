"""What is refused before any handler sees it is refused in the same shape as everything else."""

import asyncio
import json
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ebbtide.api import server
from ebbtide.chassis.clock import SystemClock
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.testing.door import RunningDoor

PROBLEM = "application/problem+json"


class Raw:
    """What came back over a bare connection, once the door had closed it."""

    def __init__(self, said: bytes) -> None:
        head, _, self.body = said.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        self.status = int(first.split()[1])
        pairs = (line.partition(": ") for line in lines)
        self.headers = {name.lower(): value for name, _, value in pairs}

    @property
    def problem(self) -> Any:
        return json.loads(self.body)


async def shout(api: RunningDoor, *pieces: bytes) -> Raw:
    """Send bytes and read until the door hangs up."""

    def send() -> bytes:
        with socket.create_connection(("127.0.0.1", api.port), timeout=20) as connection:
            for piece in pieces:
                connection.sendall(piece)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    return Raw(await asyncio.to_thread(send))


@pytest.mark.parametrize(
    "said",
    [
        b"NONSENSE\r\n\r\n",
        b"GET /v1/jobs SPDY/9\r\n\r\n",
        b"GET /v1/jobs HTTP/1.1\r\nno colon here\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"GET http://[broken/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_what_is_no_http_is_a_problem(api: RunningDoor, said: bytes) -> None:
    answer = await shout(api, said)
    assert (answer.status, answer.headers["content-type"]) == (400, PROBLEM)
    assert answer.problem["code"] == "http.malformed"


async def test_headers_without_end_are_a_problem(api: RunningDoor) -> None:
    begun = b"GET /v1/jobs HTTP/1.1\r\nX-Long: "
    answer = await shout(api, begun, b"a" * 65536)
    assert (answer.status, answer.headers["content-type"]) == (431, PROBLEM)
    assert answer.problem["code"] == "http.head_too_large"


async def test_what_follows_a_body_without_end_is_a_problem(api: RunningDoor) -> None:
    begun = b"POST /v1/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Long: "

    def send() -> bytes:
        with socket.create_connection(("127.0.0.1", api.port), timeout=20) as connection:
            connection.sendall(begun)
            assert b" 401 " in connection.recv(65536)
            connection.sendall(b"a" * 65537)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    answer = Raw(await asyncio.to_thread(send))
    assert (answer.status, answer.problem["code"]) == (431, "http.head_too_large")


async def test_requests_in_one_piece_are_not_taken_for_a_long_head(api: RunningDoor) -> None:
    asked = b"GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: %s\r\n\r\n"
    last = asked % b"close"
    answered = await shout(api, asked % b"keep-alive" * 2000 + last[:9], last[9:])
    assert answered.body.count(b"HTTP/1.1 200") == 2000


async def test_long_headers_within_the_bound_are_read(api: RunningDoor) -> None:
    answer = await api.ask("GET", "/v1/jobs", headers={"X-Long": "a" * 16000})
    assert answer.status == 200


async def test_a_large_body_is_not_taken_for_a_long_head(api: RunningDoor) -> None:
    answer = await api.ask("POST", "/v1/jobs", body=b'{"a": "' + b"a" * 500_000 + b'"}')
    assert answer.status == 422


async def test_one_connection_too_many_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 4)
    api = RunningDoor(MemoryLog(SystemClock()), tmp_path, "")
    await api.start()
    try:
        with ExitStack() as idle:
            for _ in range(4):
                idle.enter_context(socket.create_connection(("127.0.0.1", api.port)))
            answer = await shout(api, b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
    finally:
        await api.stop()
    assert (answer.status, answer.headers["content-type"]) == (503, PROBLEM)
    assert (answer.problem["code"], answer.headers["retry-after"]) == ("unavailable", "1")
