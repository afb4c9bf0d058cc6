"""One node's agent, put together: what it listens to, what it repeats, how it begins.

Everything that must outlive this process is on disk or in the sitters, so it may be killed at any
moment; stopping it well differs from that only in closing connections.
"""

import asyncio
import fcntl
import hashlib
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import msgspec
import structlog

from ebbtide.agent import cgroups
from ebbtide.agent.checkpoints import Checkpoints
from ebbtide.agent.cleaner import Cleaner
from ebbtide.agent.code_store import CodeStore
from ebbtide.agent.doors import NAME, Door, Said
from ebbtide.agent.lease import DeadlineFile, LeaseHolder, Own, Ties
from ebbtide.agent.lives import Lives
from ebbtide.agent.logs import LOOK_S, Reader, Shipper
from ebbtide.agent.model import WorkerKey
from ebbtide.agent.policy import Phase
from ebbtide.agent.ports import Ports, ephemeral_start
from ebbtide.agent.reports import Outbox, Sender
from ebbtide.agent.runtimes.plans import Host
from ebbtide.agent.runtimes.process import Processes
from ebbtide.agent.supervisor import Parts, Supervisor
from ebbtide.agent.tombstones import Tombstones
from ebbtide.chassis.bus import Bus, Entry, Message, Subscription
from ebbtide.chassis.clock import boottime_s, random_bytes
from ebbtide.chassis.settings import Secret
from ebbtide.contracts import seals, subjects
from ebbtide.contracts.agents import Desired, Registered, Registration
from ebbtide.contracts.errors import EbbtideError, Malformed, Unavailable
from ebbtide.contracts.ids import NodeName, PoolName

REGISTER_EVERY_S = 60.0
FIRST_PAUSE_S = 0.02
PAUSE_MAX_S = 1.0
"""Pauses before asking again: short at first, for all parts of a platform may start at once."""
ANSWER_S = 5.0
PROGRESS_EVERY_S = 10.0
PROGRESS_NUMBERS_MAX = 64
SECRET_BYTES = 32
_log = structlog.get_logger()
_desired = msgspec.json.Decoder(Desired)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Who this node is and what it has; all that an agent must be told."""

    cell: str
    node: str
    pool: str
    address: str
    capacity: dict[str, int]
    state: Path
    store: Path
    interpreter: str
    home: str
    temporary: str = "/tmp"  # noqa: S108 - a short path for workers
    lease_s: float = 180.0
    cgroup: str = ""
    boot: str = ""
    token: Secret = Secret()


class Busy(EbbtideError):
    """Another agent serves this state folder."""

    code = "agent.busy"


class Node:
    """The agent of one node."""

    def __init__(self, facts: Facts, bus: Bus) -> None:
        facts.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._facts, self._bus = facts, bus
        self._lock = _only_one(facts.state)
        secret = _secret(facts.state / "secret")
        self._lives = Lives(facts.state / "lives")
        self._ports = Ports(facts.state / "port", ephemeral_start(_read(_EPHEMERAL)))
        backend = cgroups.find(
            facts.state, facts.cgroup, _read("/proc/self/cgroup"), _read("/proc/self/mounts")
        )
        cgroups.note(facts.state, backend)
        self._runtime = Processes(
            facts.state,
            self._lives,
            cgroups.Groups(backend),
            CodeStore(facts.store, facts.state / "code"),
            secret,
        )
        tombstones = Tombstones(facts.state / "tombstones")
        self.outbox = Outbox(Sender(NodeName(facts.node), facts.cell, bus))
        self._shipper = Shipper(facts.store, self._log_of)
        self._cleaner = Cleaner(self._runtime, self._shipper, tombstones)
        self.supervisor = Supervisor(
            Parts(
                boot=facts.boot,
                host=_host(facts, secret),
                runtime=self._runtime,
                ports=self._ports,
                outbox=self.outbox,
                tombstones=tombstones,
                seen=facts.state / "seen",
                on_over=self._cleaner.put,
            )
        )
        self._reader = Reader(bus, self.supervisor.find, self._log_of, self._shipper.beginning)
        self._deadline = DeadlineFile(facts.state / "lease")
        own = Own(
            NodeName(facts.node), facts.boot, hashlib.sha256(secret).hexdigest()[:16], facts.lease_s
        )
        ties = Ties(self._on_lease, lambda: not self.supervisor.has_stop_workers(), boottime_s)
        self._lease = LeaseHolder(own, bus, subjects.lease_bucket(facts.cell), self._deadline, ties)
        self._checkpoints = Checkpoints(facts.state / "checkpoints", bus, self._speak("checkpoint"))
        self._door = Door(facts.state, secret, self._hear)
        self._progress: dict[str, dict[str, float]] = {}
        self._progressed = asyncio.Event()
        self._listening: list[Subscription] = []

    def _speak(self, verb: str) -> str:
        return subjects.agent(self._facts.cell, self._facts.node, verb)

    def _log_of(self, slot: int) -> Path:
        return self._runtime.folder(slot) / "log"

    async def run(self) -> None:
        """Adopt what runs, open the door, then listen, renew, report and clean until cancelled."""
        facts = self._facts
        self.supervisor.lease_stands = self._deadline.read() > boottime_s()
        self.supervisor.adopt()
        await self._door.open()
        self._bus.on_return(self._on_return)
        try:
            async with asyncio.TaskGroup() as group:
                for repeat in (
                    self._lease.run(),
                    self._cleaner.run(self.supervisor.forget),
                    self._checkpoints.run(),
                    self._register(),
                    self._look_at_logs(),
                    self._tell_progress(),
                ):
                    group.create_task(repeat)
                await self._listen()
                _log.info("agent.running", node=facts.node, capacity=facts.capacity)
        finally:
            await self._close()

    async def _listen(self) -> None:
        bus, cell, name = self._bus, self._facts.cell, self._facts.node
        for subject, handler in (
            (subjects.node(cell, name, "logs"), self._reader.on_read),
            (subjects.node(cell, name, "tell"), self._on_tell),
            (subjects.tell_all(cell), self._on_tell),
        ):
            listen = partial(bus.subscribe, subject, handler)
            self._listening.append(await _patiently(listen))
        bucket = subjects.desired_bucket(cell)
        self._listening.append(
            await _patiently(lambda: bus.kv_watch(bucket, name, self._on_desired))
        )

    async def _on_desired(self, entry: Entry) -> None:
        try:
            body = seals.unseal(self._facts.node, entry.value, self._facts.token)
            desired = _desired.decode(body)
        except (Malformed, msgspec.MsgspecError) as error:
            _log.error("desired.malformed", revision=entry.revision, error=str(error))
            return
        self.supervisor.take(desired)

    async def _on_tell(self, _message: Message) -> None:
        self.supervisor.say_whole()

    async def _on_return(self) -> None:
        self._lease.poke()
        self.outbox.say_all_again()

    def _on_lease(self, stands: bool) -> None:
        if stands != self.supervisor.lease_stands:
            _log.info("lease.stands" if stands else "lease.ran_out", node=self._facts.node)
        self.supervisor.on_lease(stands)

    async def _register(self) -> None:
        """Say what this machine is, until it is answered and each minute again."""
        facts = self._facts
        said = Registration(
            node=NodeName(facts.node),
            pool=PoolName(facts.pool),
            address=facts.address,
            boot=facts.boot,
            capacity=facts.capacity,
        )
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                answer = await self._bus.request(
                    self._speak("register"), msgspec.json.encode(said), ANSWER_S
                )
                msgspec.json.decode(answer, type=Registered)  # what cannot be read is no answer
                pause_s = REGISTER_EVERY_S
            except (Unavailable, msgspec.MsgspecError):
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
            await asyncio.sleep(pause_s)

    async def _look_at_logs(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            running = [one for one in self.supervisor.workers() if one.phase is Phase.RUNNING]
            if running:
                try:
                    await asyncio.to_thread(self._shipper.ship_grown, running, boottime_s())
                except OSError as error:
                    _log.warning("log.not_shipped", error=str(error))

    async def _hear(self, key: WorkerKey, said: Said) -> str:
        """Take what a worker says at the door."""
        if said.say == "commit":
            return await self._checkpoints.take(key, said)
        if said.say == "progress":
            if len(said.numbers) > PROGRESS_NUMBERS_MAX:
                return f"more than {PROGRESS_NUMBERS_MAX} numbers"
            self._progress[str(key)] = said.numbers
            self._progressed.set()
            return ""
        return f"{said.say!r} is not understood here"

    async def _tell_progress(self) -> None:
        """Pass the newest numbers of each worker on, now and then and only if there are any."""
        while True:
            await self._progressed.wait()
            self._progressed.clear()
            told, self._progress = self._progress, {}
            try:
                await self._bus.publish(self._speak("progress"), msgspec.json.encode(told))
            except EbbtideError as error:
                _log.debug("progress.not_told", error=str(error))
            await asyncio.sleep(PROGRESS_EVERY_S)

    async def _close(self) -> None:
        for subscription in self._listening:
            await subscription.close()
        await self._door.close()
        await self._reader.close()
        await self.outbox.close()
        self.supervisor.close()
        self._runtime.close()
        self._ports.close()
        self._deadline.close()
        self._lives.close()
        os.close(self._lock)


_EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"


async def _patiently(listen: Callable[[], Awaitable[Subscription]]) -> Subscription:
    """Listen as soon as the server lets us: it may start later than we do."""
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return await listen()
        except EbbtideError as error:
            _log.debug("agent.waits_for_server", error=str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)


def _host(facts: Facts, secret: bytes) -> Host:
    return Host(
        node=facts.node,
        address=facts.address,
        store=str(facts.store),
        door=str(facts.state / NAME),
        interpreter=facts.interpreter,
        home=facts.home,
        temporary=facts.temporary,
        has_gpus=any(name.startswith("gpu") for name in facts.capacity),
        secret=secret,
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def boot_id() -> str:
    """Name the machine's present life: nothing of a former one still runs."""
    return _read("/proc/sys/kernel/random/boot_id").strip()


def _only_one(state: Path) -> int:
    """Lock the state folder for this agent.

    Raises:
        Busy: another agent has it.
    """
    lock = os.open(state / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise Busy(f"another agent serves {state}") from error
    return lock


def _secret(path: Path) -> bytes:
    """Give the node's own secret, made once; it seals keys and names the lease's holder."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        kept = path.read_bytes()
        if len(kept) == SECRET_BYTES:
            return kept
        path.unlink()
        return _secret(path)
    with os.fdopen(fd, "wb") as file:
        secret = random_bytes(SECRET_BYTES)
        file.write(secret)
        file.flush()
        os.fsync(file.fileno())
    return secret
