"""A door of the test's own: the real projector and HTTP server, on any log, and hands to ask it."""

import asyncio
import http.client
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ebbtide.api.projector import Projector
from ebbtide.api.server import HttpServer
from ebbtide.api.shell import parts
from ebbtide.chassis.bus import Message
from ebbtide.chassis.clock import SystemClock
from ebbtide.chassis.context import Context
from ebbtide.contracts.envelope import Append, Unit
from ebbtide.contracts.ids import JobId, job_id
from ebbtide.eventlog.log import Decided
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.eventlog.postgres import PostgresLog
from ebbtide.eventlog.reader import Reader
from ebbtide.testing.bus import MemoryServer
from ebbtide.testing.waiting import wait_until

ADMIN = "ebb_admin_a1_secretofthetest"
CELL = "main"


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # whatever it is, the test says what it must be
        """Read the body as JSON."""
        return json.loads(self.body)


class RunningDoor:
    """A running door, and hands to ask it and to say what other services would."""

    def __init__(self, log: MemoryLog | PostgresLog, folder: Path, database_url: str) -> None:
        self.log = log
        self.folder = folder
        self.database_url = database_url
        self.nats = MemoryServer()
        self.clock = SystemClock()
        self.admin = ADMIN
        self._made = 0

    async def start(self, port: int = 0) -> None:
        """Start every part, and wait until it answers."""
        self.reader = Reader(self.log, poll_s=0.02)
        self.log.on_commit = self.reader.offer
        (self.folder / "tokens").mkdir(exist_ok=True)
        (self.folder / "tokens" / "admin.token").write_text(ADMIN + "\n")
        context = Context(
            cell=CELL,
            log=self.log,
            source=self.reader,
            bus=self.nats.connect("api"),
            clock=self.clock,
            store=self.folder / "store",
            database_url=self.database_url,
            environ={
                "EBB_API_PORT": str(port),
                "EBB_API_BOOTSTRAP_TOKENS": str(self.folder / "tokens"),
            },
        )
        self.parts = parts(context)
        projector, server = self.parts[0], self.parts[-1]
        if not isinstance(projector, Projector) or not isinstance(server, HttpServer):
            raise TypeError("the first part is the projector, the last the server")
        self.projector, self.door = projector, server.door
        for part in self.parts:
            await part.start()
        self.tasks = [asyncio.create_task(self.reader.run())]
        self.tasks += [asyncio.create_task(part.run()) for part in self.parts]
        self.port = server.port
        self.url = f"http://127.0.0.1:{self.port}"
        await wait_until(self._answers, "the door answers")

    async def _answers(self) -> bool:
        try:
            return (await self.ask("GET", "/v1/jobs")).status == 200
        except ConnectionRefusedError:
            return False

    async def stop(self) -> None:
        """Stop every part; what the log and the folder hold stays."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for part in reversed(self.parts):
            await part.stop()

    async def ask(
        self,
        method: str,
        path: str,
        given: object = None,
        token: str = ADMIN,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Ask once, on a connection of its own."""
        return await asyncio.to_thread(self._ask, method, path, given, token, headers, body)

    def _ask(
        self,
        method: str,
        path: str,
        given: object,
        token: str,
        headers: Mapping[str, str] | None,
        body: bytes | None,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            sent = {"Authorization": f"Bearer {token}"} if token else {}
            data = json.dumps(given).encode() if given is not None else body
            connection.request(method, path, data, {**sent, **(headers or {})})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.headers.items()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    async def say(self, *appends: Append) -> int:
        """Say something as another service; give the position."""
        decided = Decided(
            service="test",
            read_to=await self.log.head(),
            decided_at=self.clock.now(),
            units=(Unit(appends=appends),),
        )
        stood = (await self.log.append(decided)).positions[0]
        if stood is None:
            raise AssertionError(f"somebody else moved the stream of {appends}")
        await self.reader.reached(stood[1], 5)
        return stood[1]

    def new_id(self) -> JobId:
        """Make an id for a job."""
        self._made += 1
        return job_id(CELL, self._made, b"0123456789")

    async def submit(
        self, token: str = ADMIN, name: str = "test", workspace: str = "", **fields: object
    ) -> JobId:
        """Submit a job and give its id."""
        job = self.new_id()
        spec = {"name": name, "command": ["true"], **fields}
        given = {"id": job, "job": spec, "workspace": workspace}
        answer = await self.ask("POST", "/v1/jobs", given, token=token)
        if answer.status != 201:
            raise AssertionError(answer)
        return job

    async def token(self, kind: str, subject: str = "") -> str:
        """Make a token and give its text."""
        answer = await self.ask("POST", "/v1/tokens", {"kind": kind, "subject": subject})
        if answer.status != 201:
            raise AssertionError(answer)
        return str(answer.json["secret"])

    async def agent(self, node: str, on_logs: Callable[[bytes], bytes]) -> None:
        """Answer log reads as the agent of ``node``."""
        bus = self.nats.connect(node)

        async def answer(message: Message) -> None:
            await bus.publish(message.reply, on_logs(message.data))

        await bus.subscribe(f"node.{CELL}.{node}.logs", answer)
