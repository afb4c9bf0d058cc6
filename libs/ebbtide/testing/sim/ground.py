"""What everybody in a simulated world stands on: its loop, log, bus, dice, and who watches."""

import asyncio
import contextvars
import datetime as dt
import random
from collections.abc import Callable

import msgspec

from ebbtide.agent.model import WorkerKey
from ebbtide.contracts import subjects
from ebbtide.testing.builders import START
from ebbtide.testing.bus import MemoryBus, MemoryServer
from ebbtide.testing.checks import PromiseBroken
from ebbtide.testing.sim.loop import SimLoop
from ebbtide.testing.sim.store import Store

CELL = "main"
LEASE_S = 9.0
ENVIRON = {"EBB_LEASE_S": str(LEASE_S)}


class SimClock:
    """A machine's clocks: the wall's may be set wrong, the monotonic one follows the loop."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.offset_s = 0.0

    def now(self) -> dt.datetime:
        """Give what the wall's clock shows."""
        return START + dt.timedelta(seconds=self._loop.time() + self.offset_s)

    def monotonic_s(self) -> float:
        """Give seconds that never fall."""
        return self._loop.time()


class Running(msgspec.Struct):
    """Which workers live, by job and rank, and on which node: what no log knows for certain.

    Over a failover that forgot a placement, the forgotten attempt may run until its agent has been
    told to end it; ``overlaps`` counts how often.
    """

    at: dict[tuple[str, int], dict[WorkerKey, str]] = {}
    overlaps: int = 0

    def begin(self, key: WorkerKey, node: str) -> None:
        """Note that a worker runs.

        Raises:
            PromiseBroken: the same worker of the same job runs already.
        """
        here = self.at.setdefault((key.job, key.worker), {})
        for other, there in here.items():
            if other.epoch == key.epoch:
                twice = f"{other} on {there} and {key} on {node}"
                raise PromiseBroken(f"worker {key.worker} of {key.job} runs twice at once: {twice}")
            self.overlaps += 1
        here[key] = node

    def end(self, key: WorkerKey) -> None:
        """Note that it runs no more."""
        here = self.at.get((key.job, key.worker), {})
        here.pop(key, None)
        if not here:
            self.at.pop((key.job, key.worker), None)


class Ground(msgspec.Struct, kw_only=True):
    """One world's floor. ``outside`` is the context of what belongs to no process."""

    seed: int
    loop: SimLoop
    clock: SimClock
    dice: random.Random
    store: Store
    server: MemoryServer
    folder: str
    running: Running = msgspec.field(default_factory=Running)
    outside: contextvars.Context = msgspec.field(default_factory=contextvars.Context)
    server_up: bool = True
    connections: int = 0
    failure: "asyncio.Future[None]"

    def connect(self, name: str) -> MemoryBus:
        """Open a connection to the bus; while its server is away, it waits.

        Answers come to addresses of the connection's own: agents are answered nowhere else.
        """
        self.connections += 1
        bus = self.server.connect(name, f"{subjects.inbox(CELL, name)}.{self.connections}")
        if not self.server_up:
            bus.cut()
        return bus

    def fail(self, error: BaseException) -> None:
        """End the world: a promise was broken."""
        if not self.failure.done():
            self.failure.set_exception(error)

    def later(self, delay_s: float, call: Callable[..., object], *args: object) -> None:
        """Have something happen that no process does: a machine, a person, the sky."""
        self.loop.call_later(delay_s, call, *args, context=self.outside)
