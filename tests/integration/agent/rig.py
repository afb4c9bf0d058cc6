"""A node under test: a real keeper, a real agent, and a fleet that says what the test wants."""

import asyncio
import contextlib
import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import msgspec
import zstandard

from ebbtide.agent import cgroups
from ebbtide.agent.lives import Lives
from ebbtide.agent.node import Facts, Node
from ebbtide.chassis.bus import Bus, Message
from ebbtide.chassis.settings import Secret
from ebbtide.contracts import subjects
from ebbtide.contracts.agents import (
    Desired,
    DesiredAttempt,
    LogChunk,
    LogRead,
    Registered,
    Report,
    ReportAck,
    WorkerReport,
    WorkerState,
)
from ebbtide.contracts.ids import JobId, NodeNumber
from ebbtide.testing.builders import desired_attempt
from ebbtide.testing.bus import MemoryServer
from ebbtide.testing.servers import wait_until_dead
from ebbtide.testing.waiting import wait_until

NODE = "n1"
Key = tuple[str, int, int]
"""Job, attempt, worker."""


def lives(pid: int) -> bool:
    """Say whether there is a process of this number."""
    return Path(f"/proc/{pid}").exists()


def job(number: int = 1) -> JobId:
    return JobId(f"job_main_01J0000000000000000000{number:04d}")


def attempt(
    *command: str, number: int = 1, workers: int = 1, world: int = 0, **changes: object
) -> DesiredAttempt:
    """A job's attempt on the node; ``changes`` are fields of it, or of its workers."""
    own = {
        "resources": changes.pop("resources", {"cpu": 1000, "memory": 256}),
        "devices": changes.pop("devices", 0),
    }
    one = desired_attempt(job(number), command, workers, world=world or workers, **changes)
    gang = tuple(msgspec.structs.replace(worker, **own) for worker in one.workers)
    return msgspec.structs.replace(one, workers=gang)


def shell(text: str, **changes: object) -> DesiredAttempt:
    return attempt("/bin/sh", "-c", text, **changes)


class Keeper:
    """The keeper's process."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environ = {"EBB_AGENT_STATE": str(self._state), "EBB_AGENT_NODE": NODE}
        command = [sys.executable, "-m", "ebbtide.agent.keeper"]
        self.process = subprocess.Popen(command, env=environ)

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None


class Fleet:
    """Says what shall run, hears reports and settles them, unless it is told to be deaf."""

    def __init__(self, bus: Bus, cell: str) -> None:
        self.bus = bus
        self.cell = cell
        self.deaf = False
        self.epoch = 1
        self.position = 0
        self.newest: dict[Key, WorkerReport] = {}
        self.heard: list[Report] = []
        self.registered = 0
        self._revision = 0

    async def open(self) -> None:
        await self.bus.ensure_bucket(subjects.desired_bucket(self.cell))
        await self.bus.ensure_bucket(subjects.lease_bucket(self.cell))
        await self.bus.subscribe(subjects.agents(self.cell, "report"), self._report)
        await self.bus.subscribe(subjects.agents(self.cell, "register"), self._register)

    async def _report(self, message: Message) -> None:
        report = msgspec.json.decode(message.data, type=Report)
        self.heard.append(report)
        for one in report.workers:
            self.newest[one.job, one.attempt, one.worker] = one
        if self.deaf:
            return
        settled = tuple(True for _ in report.workers)
        ack = ReportAck(epoch=self.epoch, position=self.position, settled=settled)
        await self.bus.publish(message.reply, msgspec.json.encode(ack))

    async def _register(self, message: Message) -> None:
        self.registered += 1
        answer = Registered(number=NodeNumber(1), epoch=self.epoch, position=self.position)
        await self.bus.publish(message.reply, msgspec.json.encode(answer))

    async def desire(self, *attempts: DesiredAttempt) -> None:
        self.position += 1
        await self.write(Desired(epoch=self.epoch, position=self.position, attempts=attempts))

    async def write(self, desired: Desired) -> None:
        bucket = subjects.desired_bucket(self.cell)
        body = msgspec.json.encode(desired)
        self._revision = await self.bus.kv_put(bucket, NODE, body, self._revision)

    def state(self, number: int = 1, attempt: int = 1, worker: int = 0) -> WorkerState | None:
        one = self.newest.get((job(number), attempt, worker))
        return one.state if one else None

    async def until(
        self, state: WorkerState, number: int = 1, attempt: int = 1, worker: int = 0
    ) -> WorkerReport:
        """Wait for a worker's state, and give the report."""
        key = (job(number), attempt, worker)
        what = f"worker {worker} of attempt {attempt} is {state.value}"
        await wait_until(lambda: self.state(number, attempt, worker) is state, what)
        return self.newest[key]

    async def ended(self, number: int = 1, attempt: int = 1, worker: int = 0) -> WorkerReport:
        return await self.until(WorkerState.ENDED, number, attempt, worker)

    async def running(self, number: int = 1, attempt: int = 1, worker: int = 0) -> WorkerReport:
        return await self.until(WorkerState.RUNNING, number, attempt, worker)

    async def read_log(self, offset: int = 0, wait_ms: int = 0, **changes: object) -> LogChunk:
        read = LogRead(
            job=job(), attempt=1, worker=0, offset=offset, limit=1 << 20, wait_ms=wait_ms
        )
        body = msgspec.json.encode(msgspec.structs.replace(read, **changes))
        answer = await self.bus.request(subjects.node(self.cell, NODE, "logs"), body, 10.0)
        return msgspec.json.decode(answer, type=LogChunk)


class Rig:
    """A node: its folders, its keeper, its agent in this process, and its fleet."""

    def __init__(self, folder: Path, server: MemoryServer) -> None:
        self.state = folder / "state"
        self.store = folder / "store"
        self.server = server
        self.keeper = Keeper(self.state)
        self.fleet = Fleet(server.connect("services"), "main")
        self.bus = server.connect(NODE)
        self.node: Node | None = None
        self.lease_s = 180.0
        self.token = ""
        self.capacity = {"cpu": 4000, "memory": 4096}
        self._task: asyncio.Task[None] | None = None

    def facts(self) -> Facts:
        return Facts(
            cell="main",
            node=NODE,
            pool="default",
            address="127.0.0.1",
            capacity=self.capacity,
            state=self.state,
            store=self.store,
            interpreter=str(Path(sys.executable).parent),
            home=str(Path.home()),
            lease_s=self.lease_s,
            boot="boot",
            token=Secret(self.token),
        )

    def start_agent(self) -> None:
        self.bus = self.server.connect(NODE)
        self.node = Node(self.facts(), self.bus)
        self._task = asyncio.create_task(self.node.run())

    async def stop_agent(self) -> None:
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
            await self.bus.close()

    async def restart_agent(self) -> None:
        await self.stop_agent()
        self.start_agent()

    def slots(self) -> list[int]:
        """Name the slots that are not free."""
        body = (self.state / "lives").read_bytes()
        return [at // 1024 for at in range(0, len(body), 1024) if body[at]]

    def sitters(self) -> set[int]:
        """Name the keeper's children: every sitter, idle ones too."""
        keeper = self.keeper.process
        assert keeper is not None
        text = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text()
        return {int(pid) for pid in text.split()}

    def let_go(self) -> None:
        """Make the file that a waiting worker looks for."""
        next((self.state / "workers").glob("*/work")).joinpath("go").touch()

    def pids(self) -> list[int]:
        """Read the pids that workers have written into their folders."""
        files = [slot / "work" / "pid" for slot in (self.state / "workers").glob("*")]
        texts = [file.read_text() for file in files if file.exists()]
        return [int(text) for text in texts if text.strip()]

    def group(self) -> cgroups.Group:
        """Give the cgroup of the first slot."""
        return groups_of(self.state).known(0)

    def has_line(self, line: str) -> bool:
        logs = (self.state / "workers").glob("*/log")
        return any(line in path.read_text().splitlines() for path in logs)

    def lines(self, number: int = 0) -> str:
        return (self.state / "workers" / f"{number:04d}" / "log").read_text()


def end_sitters(state: Path) -> None:
    """End what a test has left running: a sitter then kills all of its worker, and leaves."""
    if not (state / "lives").exists():
        return
    for pid in sitters_of(state):
        os.kill(pid, signal.SIGUSR1)
        os.kill(pid, signal.SIGCONT)
        wait_until_dead(pid)
    cgroups.remove(state)


def groups_of(state: Path) -> cgroups.Groups:
    """Find the cgroups of a node as its agent does."""
    own, mounts = Path("/proc/self/cgroup").read_text(), Path("/proc/self/mounts").read_text()
    return cgroups.Groups(cgroups.find(state, "", own, mounts))


def put_code(store: Path, files: dict[str, bytes], mode: int = 0o600) -> str:
    """Put a code folder into the store; give its digest."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, body in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(body), mode
            tar.addfile(entry, io.BytesIO(body))
    packed = zstandard.ZstdCompressor().compress(plain.getvalue())
    digest = hashlib.sha256(packed).hexdigest()
    (store / "code").mkdir(parents=True, exist_ok=True)
    (store / "code" / f"{digest}.tar.zst").write_bytes(packed)
    return f"sha256:{digest}"


def sitters_of(state: Path) -> list[int]:
    """Name the sitters that serve a worker just now."""
    records = Lives(state / "lives")
    held = [records.holder(life.slot) for life in records.found()]
    records.close()
    return [pid for pid in held if pid]
