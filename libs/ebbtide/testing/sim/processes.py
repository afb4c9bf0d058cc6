"""Processes of services in a simulated world, started and restarted as a supervisor does it.

What lives in them is real: shells, cycles, reader and relay, run by the chassis. A process may be
killed, which leaves nothing but the log, and frozen, which leaves everything where it is.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ebbtide.chassis import process as chassis
from ebbtide.chassis.context import Context
from ebbtide.checkpoint import shell as checkpoint
from ebbtide.contracts.errors import EbbtideError, StaleEpoch, Unavailable
from ebbtide.eventlog.reader import Reader
from ebbtide.fleet import shell as fleet
from ebbtide.node_health import shell as node_health
from ebbtide.quota import shell as quota
from ebbtide.recovery import shell as recovery
from ebbtide.relay import shell as relay
from ebbtide.scheduler import shell as scheduler
from ebbtide.testing.bus import MemoryBus
from ebbtide.testing.checks import PromiseBroken
from ebbtide.testing.sim.ground import CELL, ENVIRON, Ground, SimClock
from ebbtide.testing.sim.loop import Owner
from ebbtide.testing.sim.store import Line

WAIT_S = 0.5
AGAIN_S = 0.5
"""Until a supervisor starts again what ended by itself."""


class Card(NamedTuple):
    """What runs in a process, and how it notices what others append."""

    name: str
    builds: tuple[chassis.Build, ...]
    hear: chassis.Hear


_ALL = {
    "quota": quota.parts,
    "scheduler": scheduler.parts,
    "fleet": fleet.parts,
    "recovery": recovery.parts,
    "checkpoint": checkpoint.parts,
    "node_health": node_health.parts,
    "relay": relay.parts,
}


def cards(*, split: bool, twins: bool) -> list[Card]:
    """Give the processes of a platform: one for all services, or one for each; perhaps twice."""
    if split:
        once = [
            Card(name, (build,), "log" if name == "relay" else "stream")
            for name, build in _ALL.items()
        ]
    else:
        once = [Card("control", tuple(_ALL.values()), "stream" if twins else "memory")]
    if not twins:
        return once
    return [*once, *(card._replace(name=f"{card.name}-2") for card in once)]


class Process:
    """One process, through all its lives."""

    def __init__(self, card: Card, ground: Ground) -> None:
        self.name = card.name
        self.clock = SimClock(ground.loop)
        self.line: Line | None = None
        self.lives = 0
        self._card, self._ground = card, ground
        self._bus: MemoryBus | None = None
        self._owner = Owner(card.name)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin a life, unless one is being lived."""
        if self._task is not None:
            return
        self._owner = Owner(self.name)
        self.lives += 1
        self._task = self._ground.loop.create_task(self._run(), context=self._owner.context)
        self._task.add_done_callback(self._ended, context=self._ground.outside)

    def kill(self) -> None:
        """End it at once: nothing that it still does reaches anybody."""
        task, self._task = self._task, None
        if task is None:
            return
        if self.line is not None:
            self.line.vanish()
        if self._bus is not None:
            self._bus.vanish()
        self._owner.thaw(self._ground.loop)
        task.cancel()

    def freeze(self) -> None:
        """Have it do nothing, as SIGSTOP does."""
        self._owner.freeze()

    def thaw(self) -> None:
        """Let it go on."""
        self._owner.thaw(self._ground.loop)

    def cut(self) -> None:
        """Cut it off the bus."""
        if self._bus is not None:
            self._bus.cut()

    def restore(self) -> None:
        """Let it reach the bus again."""
        if self._bus is not None and self._ground.server_up:
            self._bus.restore()

    async def _run(self) -> None:
        """Live in one epoch after the other, as a process of ours does."""
        while True:
            try:
                await self._life()
            except* StaleEpoch:
                await asyncio.sleep(chassis.REFOLD_S)

    async def _life(self) -> None:
        ground, card = self._ground, self._card
        line = self.line = Line(ground.store)
        bus = self._bus = ground.connect(self.name)
        try:
            await self._wait_for_servers(line)
            reader = Reader(line)
            line.on_commit = reader.offer
            context = Context(
                cell=CELL,
                log=line,
                source=reader,
                bus=bus,
                clock=self.clock,
                store=Path(ground.folder),
                database_url="",
                environ=ENVIRON,
            )
            parts = [part for build in card.builds for part in build(context)]
            notice = chassis.hearing(CELL, line, bus, reader, card.hear)
            await chassis.live(parts, reader, notice, asyncio.Event(), lambda: None)
        finally:
            await bus.close()
            await line.close()

    async def _wait_for_servers(self, line: Line) -> None:
        while True:
            try:
                await line.head()
            except Unavailable:
                await asyncio.sleep(WAIT_S)
            else:
                return

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Start again what ended; a part that contradicts itself is a promise broken."""
        if task is not self._task:
            return  # it was killed
        self._task = None
        bad = [one for one in _leaves(task.exception()) if not is_of_the_world(one)]
        if bad:
            broken = PromiseBroken(f"{self.name} ended by itself: {bad[0]!r}")
            broken.__cause__ = bad[0]
            self._ground.fail(broken)
        self._ground.later(AGAIN_S, self.start)


def is_of_the_world(error: BaseException) -> bool:
    """Say whether a process may end by this: it is started again and nothing is lost."""
    return isinstance(error, EbbtideError) and error.retryable


def _leaves(error: BaseException | None) -> Sequence[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in _leaves(one)]
    return [error] if error is not None else []
