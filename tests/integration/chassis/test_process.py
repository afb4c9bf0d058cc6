"""How a service's process starts when its servers are not there, and with what status it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ebbtide.testing.servers import NatsServer, PostgresServer
from ebbtide.testing.waiting import wait_until

EXIT_AGAIN, EXIT_BAD_SETTINGS = 75, 78
NOWHERE = {
    "EBB_DATABASE_URL": "postgresql://u:secretword@127.0.0.1:1/x",
    "EBB_NATS_URL": "nats://u:secretword@127.0.0.1:1",
}
SHORT = "from ebbtide.chassis import process; process.SERVERS_WAIT_S = {wait_s}; "


class Service:
    """A process without parts: all that it does is to wait for its servers and to end."""

    def __init__(self, environ: Mapping[str, str], log: Path, wait_s: float) -> None:
        self._log = log
        code = SHORT.format(wait_s=wait_s) + "process.main('service', [])"
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code], env={**os.environ, **environ}, stderr=file
            )

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    @property
    def events(self) -> list[str]:
        return [line["event"] for line in self.lines]


Start = Callable[..., Service]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Service] = []

    def start(environ: Mapping[str, str], wait_s: float = 60.0) -> Service:
        given = {"EBB_STORE": str(tmp_path / "store"), **environ}
        started.append(Service(given, tmp_path / "log", wait_s))
        return started[-1]

    yield start
    for service in started:
        service.process.kill()
        service.process.wait()


async def test_a_database_that_is_away_at_the_start_is_waited_for(
    private_postgres: PostgresServer, nats_url: str, start: Start
) -> None:
    private_postgres.stop()
    service = start({"EBB_DATABASE_URL": private_postgres.url, "EBB_NATS_URL": nats_url})
    await wait_until(lambda: "process.waits_for_server" in service.events, "it says so")
    private_postgres.start()
    await wait_until(lambda: "process.running" in service.events, "it runs")


async def test_a_bus_that_is_away_at_the_start_is_waited_for(
    private_nats: NatsServer, database_url: str, start: Start
) -> None:
    private_nats.kill()
    service = start({"EBB_DATABASE_URL": database_url, "EBB_NATS_URL": private_nats.url})
    await wait_until(lambda: service.process.poll() is not None or bool(service.events), "it waits")
    private_nats.start()
    await wait_until(lambda: "process.running" in service.events, "it runs")


def test_who_waited_too_long_asks_to_be_started_again(start: Start) -> None:
    service = start(NOWHERE, wait_s=0.3)
    assert service.process.wait(timeout=20) == EXIT_AGAIN
    assert service.events[-1] == "process.ends_for_now"


def test_waiting_is_said_now_and_then_and_not_at_each_try(start: Start) -> None:
    service = start(NOWHERE, wait_s=1.5)
    service.process.wait(timeout=20)
    events = [line for line in service.lines if line["event"] == "process.waits_for_server"]
    said = [line["server"] for line in events]
    assert "Postgres" in said
    assert len(said) == len(set(said)), "tries are made ten times a second"


async def test_who_waits_ends_at_once_when_told(start: Start) -> None:
    service = start(NOWHERE)
    await wait_until(lambda: "process.waits_for_server" in service.events, "it waits")
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(timeout=10) == 0


def test_a_password_that_is_refused_is_waited_for_like_a_server(
    postgres_url: str, nats_url: str, start: Start
) -> None:
    wrong = postgres_url.replace(
        postgres_url.split("@", maxsplit=1)[0], "postgresql://postgres:secretword"
    )
    service = start({"EBB_DATABASE_URL": wrong, "EBB_NATS_URL": nats_url}, wait_s=0.3)
    assert service.process.wait(timeout=20) == EXIT_AGAIN
    assert "password" in service.lines[0]["error"]


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("EBB_DATABASE_URL", ""),
        ("EBB_DATABASE_URL", "secretword"),
        ("EBB_DATABASE_URL", "mysql://u:secretword@h/x"),
        ("EBB_DATABASE_URL", "postgresql://u:secretword@h:99999/x"),
        ("EBB_NATS_URL", "secretword"),
        ("EBB_NATS_URL", "nats://u:secretword@h:port"),
        ("EBB_NATS_URL", "nats://u:secretword@h:1,http://other"),
        ("EBB_NATS_URL", "nats://[u:secretword@h"),
        ("EBB_CELL", "No Name"),
    ],
)
def test_a_setting_that_cannot_be_right_ends_the_process_for_good(
    start: Start, variable: str, text: str
) -> None:
    service = start({**NOWHERE, variable: text})
    assert service.process.wait(timeout=20) == EXIT_BAD_SETTINGS
    assert variable in service.lines[-1]["error"]


@pytest.mark.parametrize("text", ["secretword", "nats://u:secretword@h:port"])
def test_what_was_set_wrongly_is_named_but_not_shown(start: Start, text: str) -> None:
    service = start({**NOWHERE, "EBB_NATS_URL": text})
    service.process.wait(timeout=20)
    assert "secretword" not in json.dumps(service.lines)
