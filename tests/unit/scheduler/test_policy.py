"""One cycle of scheduling: who is released, who is placed, and under which guards."""

import datetime as dt
import random

import pytest

from ebbtide.chassis.service import Decision
from ebbtide.contracts.envelope import Position, Recorded
from ebbtide.contracts.events import (
    AttemptEnded,
    GangPlaced,
    GangReleased,
    JobPlaced,
    JobQueued,
    JobStopRequested,
    JobSubmitted,
    NodeJoined,
    NodeSuspected,
    QuotaChanged,
)
from ebbtide.contracts.ids import JobId, NodeNumber, QuotaName
from ebbtide.contracts.job_spec import JobSpec
from ebbtide.contracts.outcomes import Outcome
from ebbtide.eventlog.log import Decided
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.scheduler.model import Picture
from ebbtide.scheduler.policy import HOLD, decide
from ebbtide.testing.builders import TEAM, VirtualClock, job_name, registration, spec
from ebbtide.testing.logbook import decided
from ebbtide.testing.logbook import unit as one_unit


class Desk:
    """A scheduler with a log of its own: say what happened, then see what it decides."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.log = MemoryLog(self.clock)
        self.picture = Picture()
        self._read = 0
        self._jobs = 0

    async def say(self, stream: str, *bodies: object) -> None:
        from ebbtide.contracts.envelope import Append

        units = [one_unit(Append(stream=stream, body=body, workspace=TEAM)) for body in bodies]
        await self.log.append(decided(*units, read_to=await self.log.head()))
        await self._fold()

    async def _fold(self) -> list[Recorded]:
        events = await self.log.read(self._read, 10_000)
        self._read += len(events)
        for recorded in events:
            self.picture.apply(recorded)
        return events

    async def node(self, number: int, cpu: int = 4) -> None:
        said = registration(f"n{number}", cpu=cpu * 1000)
        body = NodeJoined(
            node=NodeNumber(number),
            name=said.node,
            pool=said.pool,
            address=said.address,
            boot=said.boot,
            capacity=said.capacity,
        )
        await self.say(f"node-{number}", body)

    async def quota(self, name: str = "default", /, **ceiling: int) -> None:
        await self.say("quota-main", QuotaChanged(quota=QuotaName(name), ceiling=ceiling))

    async def queue(self, job_spec: JobSpec) -> JobId:
        self._jobs += 1
        job = job_name(self._jobs)
        submitted = JobSubmitted(job=job, workspace=TEAM, spec=job_spec)
        await self.say(f"job-{job}", submitted, JobQueued(job=job, quota=job_spec.quota))
        return job

    def decide(self) -> Decision:
        return decide(self.picture, self.clock.now())

    def placed(self) -> list[JobId]:
        bodies = [append.body for unit in self.decide().units for append in unit.appends]
        return [body.job for body in bodies if isinstance(body, JobPlaced)]

    async def turn(self, keep: float = 1.0, dice: random.Random | None = None) -> list[Recorded]:
        """Commit a decision, or with ``keep`` below 1 a random part of its units."""
        units = self.decide().units
        if dice is not None:
            units = tuple(unit for unit in units if dice.random() < keep)
        head = await self.log.head()
        await self.log.append(
            Decided(
                service="scheduler",
                read_to=Position(1, head.number),
                decided_at=self.clock.now(),
                units=units,
            )
        )
        return await self._fold()


async def _desk(*cpus: int) -> Desk:
    desk = Desk()
    await desk.quota()
    for number, cpu in enumerate(cpus, 1):
        await desk.node(number, cpu)
    return desk


async def test_a_gang_is_placed_in_one_unit_that_guards_quota_and_nodes() -> None:
    desk = await _desk(2, 2)
    job = await desk.queue(spec(workers=2, cpu="2"))
    (unit,) = desk.decide().units
    assert [type(append.body) for append in unit.appends] == [GangPlaced, JobPlaced]
    assert set(unit.unmoved) == {"quota-main", "node-1", "node-2"}
    assert unit.appends[0].body.job == job


async def test_a_gang_that_fits_in_part_only_waits_whole() -> None:
    desk = await _desk(2)
    await desk.queue(spec(workers=2, cpu="2"))
    assert desk.decide().units == ()


async def test_the_first_that_must_wait_blocks_those_behind_it() -> None:
    desk = await _desk(4)
    running = await desk.queue(spec(cpu="3"))
    await desk.turn()
    await desk.queue(spec(cpu="4"))
    await desk.queue(spec(cpu="1"))
    assert desk.placed() == []
    assert running in desk.picture.world.jobs


async def test_a_job_that_needs_more_nodes_than_are_ready_blocks_nobody() -> None:
    desk = await _desk(4)
    await desk.queue(spec(workers=3, cpu="4"))
    small = await desk.queue(spec(cpu="1"))
    assert desk.placed() == [small]


async def test_nothing_is_placed_on_a_suspect_node() -> None:
    desk = await _desk(4)
    await desk.say("node-1", NodeSuspected(node=NodeNumber(1), why=""))
    await desk.queue(spec())
    assert desk.placed() == []


async def test_a_quota_at_its_ceiling_holds_up_its_own_jobs_and_no_others() -> None:
    desk = await _desk(8)
    await desk.quota("narrow", cpu=2000)
    await desk.quota("wide")
    await desk.queue(spec(cpu="2", quota="narrow"))
    await desk.turn()
    await desk.queue(spec(cpu="2", quota="narrow"))
    await desk.queue(spec(cpu="1", quota="narrow"))
    free = await desk.queue(spec(cpu="1", quota="wide"))
    assert desk.placed() == [free]


async def test_a_quota_is_never_used_past_its_ceiling() -> None:
    desk = Desk()
    await desk.quota(cpu=3000)
    await desk.node(1, 8)
    jobs = [await desk.queue(spec(cpu="1")) for _ in range(5)]
    assert desk.placed() == jobs[:3]


async def test_a_job_that_is_being_stopped_is_not_placed() -> None:
    desk = await _desk(4)
    job = await desk.queue(spec())
    await desk.say(f"job-{job}", JobStopRequested(job=job))
    assert desk.placed() == []


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.STOPPED, Outcome.PREEMPTED])
async def test_places_go_back_at_once_when_nobody_may_keep_them(outcome: Outcome) -> None:
    desk = await _desk(4)
    job = await desk.queue(spec())
    await desk.turn()
    await desk.say(f"job-{job}", AttemptEnded(job=job, attempt=1, outcome=outcome))
    (unit,) = desk.decide().units
    assert isinstance(unit.appends[0].body, GangReleased)


async def test_places_are_held_after_a_failure_until_recovery_had_its_time() -> None:
    desk = await _desk(4)
    job = await desk.queue(spec())
    await desk.turn()
    await desk.say(f"job-{job}", AttemptEnded(job=job, attempt=1, outcome=Outcome.FAILED))
    decision = desk.decide()
    assert decision.units == ()
    assert decision.wake_at == desk.clock.now() + HOLD
    desk.clock.advance(HOLD.total_seconds())
    (unit,) = desk.decide().units
    assert unit.unmoved == (f"job-{job}",)


async def test_what_one_unit_frees_no_other_unit_of_the_cycle_uses() -> None:
    desk = await _desk(4)
    first = await desk.queue(spec(cpu="4"))
    await desk.turn()
    await desk.queue(spec(cpu="4"))
    await desk.say(f"job-{first}", AttemptEnded(job=first, attempt=1, outcome=Outcome.SUCCEEDED))
    assert desk.placed() == []


@pytest.mark.parametrize("seed", range(30))
async def test_any_subset_of_a_batch_is_sound(seed: int) -> None:
    """Drop random units of each cycle: nodes stay within capacity and all jobs run in the end."""
    dice = random.Random(seed)
    desk = await _desk(*(dice.choice((2, 4, 8)) for _ in range(3)))
    jobs = [
        await desk.queue(spec(workers=dice.choice((1, 2)), cpu=dice.choice(("1", "2"))))
        for _ in range(12)
    ]
    ended: set[JobId] = set()
    for _ in range(200):
        await desk.turn(keep=0.6, dice=dice)
        assert all(min(one.left.values()) >= 0 for one in desk.picture.free.values())
        for job in jobs:
            one = desk.picture.world.jobs[job]
            if one.is_live and job not in ended and dice.random() < 0.5:
                ended.add(job)
                done = AttemptEnded(job=job, attempt=1, outcome=Outcome.SUCCEEDED)
                await desk.say(f"job-{job}", done)
    assert ended == set(jobs)
    assert all(
        one.left["cpu"] == desk.picture.world.nodes[n].capacity["cpu"]
        for n, one in desk.picture.free.items()
    )


async def test_the_same_picture_gives_the_same_decision() -> None:
    desk = await _desk(4, 4, 4)
    for _ in range(5):
        await desk.queue(spec(cpu="2"))
    now = dt.datetime(2031, 1, 1, tzinfo=dt.UTC)
    assert decide(desk.picture, now) == decide(desk.picture, now)
