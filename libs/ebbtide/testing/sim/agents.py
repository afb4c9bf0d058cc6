"""An agent in a simulated world: the real supervisor, outbox and lease holder on a machine of air.

Only what would need files, sockets and threads is left out. It may be killed and frozen like any
process; its machine and the workers there go on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from ebbtide.agent.lease import LeaseHolder, Own, Ties
from ebbtide.agent.reports import Outbox, Sender
from ebbtide.agent.runtimes.plans import Host
from ebbtide.agent.supervisor import Parts, Supervisor, Worker
from ebbtide.agent.tombstones import Tombstones
from ebbtide.chassis.bus import Entry, Message, Subscription
from ebbtide.contracts import seals, subjects
from ebbtide.contracts.agents import CheckpointAck, Desired, Registration
from ebbtide.contracts.errors import Unavailable
from ebbtide.contracts.ids import NodeName, PoolName
from ebbtide.testing.bus import MemoryBus
from ebbtide.testing.checks import PromiseBroken
from ebbtide.testing.sim.ground import CELL, LEASE_S, Ground
from ebbtide.testing.sim.loop import Owner
from ebbtide.testing.sim.machines import Hands, Machine

ANSWER_S, AGAIN_S, CLEAN_S = 5.0, 2.0, 0.2
REGISTER_EVERY_S, FIRST_PAUSE_S, PAUSE_MAX_S = 60.0, 0.02, 1.0
_HOST = Host(
    node="",
    address="127.0.0.1",
    store="",
    door="",
    interpreter="",
    home="",
    temporary="",
    has_gpus=False,
    secret=b"",
)


class Agent:
    """One node's agent, through all its lives."""

    def __init__(self, machine: Machine, capacity: dict[str, int], ground: Ground) -> None:
        self.machine = machine
        self.name = machine.name
        self._capacity = capacity
        self._ground = ground
        self._owner = Owner(self.name)
        self._bus: MemoryBus | None = None
        self._task: asyncio.Task[None] | None = None
        self._hands = Hands(machine)
        self.is_cut = False

    def start(self) -> None:
        """Begin a life, unless one is being lived or the machine is down."""
        if self._task is not None or not self.machine.alive:
            return
        self._owner = Owner(self.name)
        self._bus = self._ground.connect(self.name)
        if self.is_cut:
            self._bus.cut()
        self._hands = Hands(self.machine)
        life = _Life(self.machine, self._hands, self._capacity, self._bus)
        self._task = self._ground.loop.create_task(life.run(), context=self._owner.context)
        self._task.add_done_callback(self._ended, context=self._ground.outside)

    def kill(self) -> None:
        """End it at once."""
        task, self._task = self._task, None
        self._hands.drop()
        if task is not None and self._bus is not None:
            self._bus.vanish()
            self._owner.thaw(self._ground.loop)
            task.cancel()

    def freeze(self) -> None:
        """Have it do nothing; its machine goes on."""
        self._owner.freeze()

    def thaw(self) -> None:
        """Let it go on."""
        self._owner.thaw(self._ground.loop)

    def cut(self) -> None:
        """Cut the machine off the network."""
        self.is_cut = True
        if self._bus is not None:
            self._bus.cut()

    def restore(self) -> None:
        """Mend the network."""
        self.is_cut = False
        if self._bus is not None and self._ground.server_up:
            self._bus.restore()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task is not self._task:
            return
        broken = PromiseBroken(f"the agent of {self.name} ended by itself: {task.exception()!r}")
        broken.__cause__ = task.exception()
        self._ground.fail(broken)


class _Life:
    """An agent's process from its start to its end."""

    def __init__(
        self, machine: Machine, hands: Hands, capacity: dict[str, int], bus: MemoryBus
    ) -> None:
        self._machine, self._hands, self._bus = machine, hands, bus
        self._said = Registration(
            node=NodeName(machine.name),
            pool=PoolName("default"),
            address="127.0.0.1",
            boot=machine.boot,
            capacity=capacity,
        )
        tombstones = Tombstones(Path("/nowhere/tombstones"))
        tombstones.keep(list(machine.disk.final.values()))
        self._tombstones = tombstones
        self._outbox = Outbox(Sender(NodeName(machine.name), CELL, bus))
        seen = Path(machine.ground.folder) / f"{machine.name}-{machine.disk.number}"
        self._supervisor = Supervisor(
            Parts(
                boot=machine.boot,
                host=_HOST,
                runtime=hands,
                ports=hands,
                outbox=self._outbox,
                tombstones=tombstones,
                seen=seen,
                on_over=self._over,
            )
        )
        holder = f"{machine.name}-{machine.disk.number}"
        own = Own(NodeName(machine.name), machine.boot, holder, LEASE_S)
        has_stop = self._supervisor.has_stop_workers
        ties = Ties(self._supervisor.on_lease, lambda: not has_stop(), machine.ground.loop.time)
        self._lease = LeaseHolder(own, bus, subjects.lease_bucket(CELL), hands, ties)
        self._saved = asyncio.Event()
        self._listening: list[Subscription] = []

    async def run(self) -> None:
        """Adopt what runs, then listen, renew, report and register until cancelled."""
        machine, supervisor = self._machine, self._supervisor
        supervisor.lease_stands = machine.deadline_s > machine.ground.loop.time()
        supervisor.adopt()
        machine.on_saved = self._saved.set
        self._saved.set()
        self._bus.on_return(self._on_return)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._lease.run())
                group.create_task(self._register())
                group.create_task(self._say_saved())
                await self._listen()
        finally:
            for subscription in self._listening:
                await subscription.close()
            await self._outbox.close()
            supervisor.close()

    async def _listen(self) -> None:
        bus, name = self._bus, self._machine.name
        for subject in (subjects.node(CELL, name, "tell"), subjects.tell_all(CELL)):
            self._listening.append(await bus.subscribe(subject, self._on_tell))
        bucket = subjects.desired_bucket(CELL)
        self._listening.append(await bus.kv_watch(bucket, name, self._on_desired))

    async def _on_desired(self, entry: Entry) -> None:
        self._supervisor.take(msgspec.json.decode(seals.body_of(entry.value), type=Desired))

    async def _on_tell(self, _message: Message) -> None:
        self._supervisor.say_whole()

    async def _on_return(self) -> None:
        self._lease.poke()
        self._outbox.say_all_again()

    async def _register(self) -> None:
        subject = subjects.agent(CELL, self._machine.name, "register")
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                await self._bus.request(subject, msgspec.json.encode(self._said), ANSWER_S)
                pause_s = REGISTER_EVERY_S
            except Unavailable:
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
            await asyncio.sleep(pause_s)

    async def _say_saved(self) -> None:
        """Say what checkpoints wait on disk until each is committed or refused."""
        subject = subjects.agent(CELL, self._machine.name, "checkpoint")
        unsaid = self._machine.disk.unsaid
        while True:
            self._saved.clear()
            for report in list(unsaid):
                try:
                    body = msgspec.json.encode(report)
                    ack = msgspec.json.decode(
                        await self._bus.request(subject, body, ANSWER_S), type=CheckpointAck
                    )
                except Unavailable:
                    continue
                if ack.refused or ack.position:
                    unsaid.remove(report)
            await _wait(self._saved.wait, AGAIN_S if unsaid else None)

    def _over(self, one: Worker) -> None:
        """Clean up after a worker whose end the log holds, a little later."""
        if not one.over:
            one.over = True
            asyncio.get_running_loop().call_later(CLEAN_S, self._clean, one)

    def _clean(self, one: Worker) -> None:
        """Keep only its tombstone, on disk first."""
        self._hands.bury_for_good(one.report())
        self._supervisor.forget([one])


async def _wait(event: Callable[[], Awaitable[object]], timeout_s: float | None) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event()
    except TimeoutError:
        return
