"""One simulated world from its beginning until every job has ended.

Every event passes the checks in the moment in which it is recorded, no worker may live twice, no
process may end by contradicting itself; and when the faults have ended, everything comes to rest.
Where the design waits for a person, such as for a node that is gone for good, the world does what
that person would do.
"""

import asyncio
import contextlib
import gc
import logging
import random
import sys
import tempfile
from collections.abc import Coroutine, Iterator, MutableMapping
from typing import Any

import structlog

from ebbtide.agent.model import WorkerKey
from ebbtide.contracts import subjects
from ebbtide.contracts.envelope import Append, Recorded, Unit
from ebbtide.contracts.errors import Conflict, EbbtideError, Unavailable
from ebbtide.contracts.events import (
    Event,
    JobStopRequested,
    JobSubmitted,
    NodeChangeRequested,
    WorkerEnded,
)
from ebbtide.contracts.ids import JobId, NodeName
from ebbtide.contracts.job_spec import JobSpec
from ebbtide.eventlog.log import Decided
from ebbtide.model import fit, job, node
from ebbtide.model.job_places import nodes_of
from ebbtide.model.world import World as Picture
from ebbtide.testing.builders import TEAM, job_name, spec
from ebbtide.testing.bus import Faults, MemoryServer
from ebbtide.testing.checks import Checks, PromiseBroken
from ebbtide.testing.sim.agents import Agent
from ebbtide.testing.sim.faults import Calamities
from ebbtide.testing.sim.ground import CELL, Ground, SimClock
from ebbtide.testing.sim.loop import SimLoop
from ebbtide.testing.sim.machines import LONG_NAME, Machine
from ebbtide.testing.sim.plan import HORIZON_S, LONG, Act, Plan
from ebbtide.testing.sim.processes import Process, cards
from ebbtide.testing.sim.store import Line, Store

REST_S, LOOK_S = 900.0, 1.0
"""How long a world may take to come to rest after the faults, and how often somebody looks."""
ASK_AGAIN_S = 0.5
RARELY = (50_000, 20, 100)
"""When the collector looks for garbage: a world is small, and looking costs an eighth of it."""
CAPACITY = {"cpu": 4000, "memory": 16384}


class World:
    """A plan, being lived."""

    def __init__(self, plan: Plan, ground: Ground) -> None:
        self.plan = plan
        self.ground = ground
        self.checks, self.picture = Checks(), Picture()
        self.jobs: dict[JobId, JobSpec] = {}
        ground.store.seen, ground.store.broken = self._seen, ground.fail
        self.processes = [
            Process(card, ground) for card in cards(split=plan.split, twins=plan.twins)
        ]
        self.agents = [
            Agent(Machine(f"n{number}", ground), CAPACITY, ground)
            for number in range(1, plan.nodes + 1)
        ]
        self._sky = Calamities(ground, self.processes, self.agents, self._refold)
        self._asking: set[asyncio.Task[None]] = set()
        self._door = Line(ground.store)

    async def live(self) -> None:
        """Live the plan, mend everything, and come to rest.

        Raises:
            PromiseBroken: something happened that must never happen, or nothing more does.
        """
        everybody: list[Process | Agent] = [*self.processes, *self.agents]
        for one in everybody:
            one.start()
        living = asyncio.ensure_future(self._live())
        await asyncio.wait((living, self.ground.failure), return_when=asyncio.FIRST_COMPLETED)
        for one in everybody:
            one.kill()
        for task in (living, *self._asking):
            task.cancel()
        await asyncio.sleep(10)
        if self.ground.failure.done():
            await self.ground.failure
        await living
        if self.ground.loop.unhandled:
            raise PromiseBroken(f"nobody handled {self.ground.loop.unhandled[0]}")

    async def _live(self) -> None:
        loop = self.ground.loop
        for act in self.plan.acts:
            await asyncio.sleep(act.at_s - loop.time())
            if act.do == "submit":
                self._ask(self._submit(act))
            elif act.do == "stop":
                self._ask(self._stop(act.who))
            else:
                self._sky.do(act)
        await asyncio.sleep(HORIZON_S - loop.time())
        self._sky.end_all()
        await self._come_to_rest()
        self.checks.finish()

    async def _come_to_rest(self) -> None:
        until_s = self.ground.loop.time() + REST_S
        while self._asking or self.picture.jobs or self.ground.running.at or self._lags():
            await asyncio.sleep(LOOK_S)
            self._operate()
            if self.ground.loop.time() > until_s:
                left = {one.id: one.stage for one in self.picture.jobs.values()}
                raise PromiseBroken(f"never at rest: {left}, workers {self.ground.running.at}")

    def _lags(self) -> bool:
        """Say whether the stream still has to catch up with the log.

        Raises:
            PromiseBroken: it tells another story: a message is not the event of its sequence.
        """
        kept = self.ground.server.hub.streams.get(subjects.events_stream(CELL))
        if kept is None or kept.next != len(self.ground.store.events) + 1:
            return True
        for recorded in self.ground.store.events[kept.first - 1 :]:
            message = kept.after(recorded.position - 1)
            event = message.headers[subjects.HEADER_EVENT] if message is not None else "none"
            if event != recorded.event_id:
                raise PromiseBroken(f"message {recorded.position} is event {event}: {recorded}")
        return False

    def _operate(self) -> None:
        """Do what a person would: fence dead machines, stop what fits nowhere any more."""
        dead = {NodeName(one.name) for one in self.agents if not one.machine.alive}
        for there in self.picture.nodes.values():
            if there.name in dead and self._holds_live(there):
                body = NodeChangeRequested(node=there.number, change="fence", reason="it burnt")
                self._ask(self._say(node.stream(there.number), body, there.version))
        left = [one for one in self.picture.nodes.values() if one.name not in dead]
        for one in self.picture.jobs.values():
            if one.stage == "waiting" and not fit.gang_fits_empty(one.spec, left):
                self._ask(self._stop_job(one.id))

    def _holds_live(self, there: node.Node) -> bool:
        """Say whether attempts that began on a node are waited for."""
        return any(
            one.is_live
            and one.placed_at > there.fenced_at
            and there.number in nodes_of(one.placement)
            for one in self.picture.jobs.values()
            if one.placement is not None
        )

    # Events, as they are recorded.

    def _seen(self, recorded: Recorded) -> None:
        try:
            self.checks.apply(recorded)
            if isinstance(recorded.body, WorkerEnded):
                self._ended(recorded.body)
            self.picture.apply(recorded)
        except EbbtideError as error:
            self.ground.fail(error)

    def _ended(self, event: WorkerEnded) -> None:
        """Whom the log calls ended, by whatever word, lives no more."""
        one = self.picture.jobs[event.job]
        key = WorkerKey(event.job, one.placed_epoch, event.attempt, event.round, event.worker)
        there = self.ground.running.at.get((event.job, event.worker), {}).get(key)
        if there is not None:
            raise PromiseBroken(f"{key} is called ended, but lives on {there}: {event}")

    def _refold(self) -> None:
        """Know what the log still knows after a failover."""
        self.checks, self.picture = Checks(), Picture()
        for recorded in self.ground.store.events:
            self.checks.apply(recorded)
            self.picture.apply(recorded)

    # People, who ask until they are answered.

    def _ask(self, asking: Coroutine[Any, Any, None]) -> None:
        task = self.ground.loop.create_task(asking)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _submit(self, act: Act) -> None:
        dice = random.Random(f"{self.plan.seed} job {act.number}")  # noqa: S311  # repeatable
        name = job_name(act.number)
        wanted = _long() if act.much == LONG else _spec(dice)
        body = JobSubmitted(job=name, workspace=TEAM, spec=wanted)
        await self._say(job.stream(name), body, 0)

    async def _stop(self, who: float) -> None:
        names = list(self.picture.jobs)
        if names:
            await self._stop_job(names[int(who * len(names))])

    async def _stop_job(self, name: JobId) -> None:
        one = self.picture.jobs.get(name)
        if one is not None and one.stage != "final" and not one.stop_requested:
            await self._say(job.stream(name), JobStopRequested(job=name), one.version)

    async def _say(self, stream: str, body: Event, expected: int) -> None:
        """Append as a door does: until it is known to stand, or to have no place any more."""
        append = Append(stream=stream, body=body, expected=expected, workspace=TEAM)
        while True:
            line = self._line()
            try:
                head = await line.head()
                decided = Decided(
                    service="api",
                    read_to=head,
                    decided_at=self.ground.clock.now(),
                    units=(Unit(appends=(append,)),),
                )
                await line.append(decided)
            except (Conflict, Unavailable):
                await asyncio.sleep(ASK_AGAIN_S)
            else:
                return

    def _line(self) -> Line:
        """Give the door's connection: that of all services together, if they are together."""
        own = self.processes[0].line if not self.plan.split else None
        return own if own is not None else self._door


def _spec(dice: random.Random) -> JobSpec:
    return spec(
        workers=dice.choice((1, 1, 1, 2, 3)),
        cpu=dice.choice(("500m", "1", "2", "4")),
        priority=dice.randint(1, 9),
        when_cut_off=dice.choice(("stop", "stop", "run")),
        grace_s=dice.randint(1, 5),
        restart={"max_restarts": dice.randint(0, 3)},
    )


def _long() -> JobSpec:
    return spec(workers=2, cpu="2", priority=9, when_cut_off="stop", name=LONG_NAME)


def run(plan: Plan) -> int:
    """Live a world; give how many jobs it had.

    Raises:
        PromiseBroken: a promise was broken.
    """
    events = lived(plan).ground.store.events
    return sum(isinstance(one.body, JobSubmitted) for one in events)


def lived(plan: Plan) -> World:
    """Give a world after all of its plan was lived and everything has come to rest.

    Raises:
        PromiseBroken: a promise was broken.
    """
    loop = SimLoop()
    # Waiting times of services that are drawn at random are part of the world.
    random.seed(plan.seed)
    dice = random.Random(plan.seed)  # noqa: S311  # repeatable on purpose
    clock = SimClock(loop)
    with tempfile.TemporaryDirectory(prefix="ebb-world-") as folder, _told_of_errors() as errors:
        ground = Ground(
            seed=plan.seed,
            loop=loop,
            clock=clock,
            dice=dice,
            store=Store(clock, dice),
            server=MemoryServer(Faults(delay_s=0.002), seed=plan.seed),
            folder=folder,
            failure=loop.create_future(),
        )
        world = World(plan, ground)
        before = gc.get_threshold()
        gc.set_threshold(*RARELY)
        try:
            loop.run_until_complete(world.live())
        finally:
            loop.clear()
            loop.close()
            gc.set_threshold(*before)
        if errors:
            raise PromiseBroken(f"an error was logged: {errors[0]}")
        return world


@contextlib.contextmanager
def _told_of_errors() -> Iterator[list[str]]:
    """Keep quiet what services log, but for errors that are no part of this world."""
    before = structlog.get_config()
    errors: list[str] = []

    def keep(_logger: object, _method: str, said: MutableMapping[str, Any]) -> str:
        error = sys.exc_info()[1]
        if not (isinstance(error, EbbtideError) and error.retryable):
            errors.append(str(said))
        raise structlog.DropEvent

    structlog.configure(
        processors=[structlog.processors.format_exc_info, keep],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        cache_logger_on_first_use=False,
    )
    try:
        yield errors
    finally:
        structlog.configure(**before)
