"""The cycle.

A decision is taken once, a conflict is read past, a lost answer is found in the log.
"""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from ebbtide.chassis.context import Context
from ebbtide.chassis.cycle import Cycle, Pure
from ebbtide.chassis.service import Card, Decision, Service
from ebbtide.contracts.envelope import Append, Appended, Recorded, Unit
from ebbtide.contracts.errors import InvariantBroken, Unavailable
from ebbtide.contracts.events import JobQueued, JobStopped, JobStopRequested
from ebbtide.contracts.ids import JobId, QuotaName
from ebbtide.eventlog.log import Decided, Snapshot
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.eventlog.reader import Reader
from ebbtide.testing.builders import START, VirtualClock
from ebbtide.testing.bus import MemoryServer
from ebbtide.testing.logbook import decided
from ebbtide.testing.waiting import wait_until

CARD = Card(name="recovery", duty="", reads=("job-",))


class Tally(msgspec.Struct, kw_only=True):
    """Answers every JobStopRequested with one JobStopped."""

    versions: dict[JobId, int] = {}
    open: dict[JobId, None] = {}

    def apply(self, recorded: Recorded) -> None:
        event = recorded.body
        if isinstance(event, JobStopRequested):
            self.open[event.job] = None
        elif isinstance(event, JobStopped):
            self.open.pop(event.job, None)
        self.versions[event.job] = recorded.version


def decide(picture: Tally, _now: dt.datetime) -> Decision:
    return Decision(
        units=tuple(
            Unit(
                appends=(
                    Append(
                        stream=f"job-{job}",
                        body=JobStopped(job=job),
                        expected=picture.versions[job],
                    ),
                )
            )
            for job in picture.open
        )
    )


class Forgetful(MemoryLog):
    """A log whose answers get lost: what was sent stands, or does not, and nobody is told."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.lose: list[bool] = []

    async def append(self, decided: Decided) -> Appended:
        if decided.revision is None or not self.lose:
            return await super().append(decided)
        if self.lose.pop(0):
            await super().append(decided)
        raise Unavailable("the connection was lost")


@asynccontextmanager
async def running(log: MemoryLog, replicas: int = 1) -> AsyncIterator[Reader]:
    clock = VirtualClock()
    reader = Reader(log, poll_s=0.01)
    log.on_commit = reader.offer
    context = Context("main", log, reader, MemoryServer().connect(), clock, Path(), "", {})
    cycles = [Cycle(Pure(CARD, Tally, decide), context) for _ in range(replicas)]
    for cycle in cycles:
        await cycle.start()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run) for run in (reader.run(), *(one.run() for one in cycles))]
        yield reader
        for task in tasks:
            task.cancel()
    for cycle in cycles:
        await cycle.stop()


def _one(log: MemoryLog, service: Service) -> tuple[Cycle, Reader]:
    """Make one cycle with a reader of its own, neither of them running."""
    reader = Reader(log, poll_s=0.01)
    log.on_commit = reader.offer
    bus = MemoryServer().connect()
    return Cycle(service, Context("main", log, reader, bus, VirtualClock(), Path(), "", {})), reader


async def _ask(log: MemoryLog, *jobs: str) -> None:
    units = [
        Unit(appends=(Append(stream=f"job-{job}", body=JobStopRequested(job=JobId(job))),))
        for job in jobs
    ]
    await log.append(decided(*units, read_to=await log.head()))


async def _stopped(log: MemoryLog) -> list[str]:
    events = await MemoryLog.read(log, 0, 10_000)
    return [one.body.job for one in events if isinstance(one.body, JobStopped)]


def _answers(log: MemoryLog, count: int) -> "asyncio.Future[None]":
    async def enough() -> bool:
        return len(await _stopped(log)) >= count

    return wait_until(enough, f"{count} answers")  # type: ignore[return-value]


async def test_what_comes_is_answered_once() -> None:
    log = MemoryLog(VirtualClock())
    async with running(log):
        await _ask(log, "a", "b")
        await _answers(log, 2)
        await _ask(log, "c")
        await _answers(log, 3)
    assert await _stopped(log) == ["a", "b", "c"]


async def test_two_replicas_take_each_decision_once() -> None:
    log = MemoryLog(VirtualClock())
    async with running(log, replicas=2):
        for number in range(50):
            await _ask(log, f"j{number}")
        await _answers(log, 50)
    assert sorted(await _stopped(log)) == sorted(f"j{number}" for number in range(50))


async def test_a_lost_answer_is_found_in_the_log_whether_it_stood_or_not() -> None:
    log = Forgetful(VirtualClock())
    log.lose = [True, False, False, True]
    async with running(log):
        for number in range(6):
            await _ask(log, f"j{number}")
        await _answers(log, 6)
    assert sorted(await _stopped(log)) == [f"j{number}" for number in range(6)]


async def test_a_restart_goes_on_from_the_snapshot_and_reads_only_what_followed() -> None:
    class Counting(MemoryLog):
        read_after: ClassVar[list[int]] = []

        async def read(self, after: int, limit: int) -> list[Recorded]:
            self.read_after.append(after)
            return await super().read(after, limit)

    log = Counting(VirtualClock())
    async with running(log):
        await _ask(log, *(f"j{number}" for number in range(20)))
        await _answers(log, 20)
    end = (await log.head()).number
    log.read_after.clear()
    async with running(log):
        await _ask(log, "late")
        await _answers(log, 21)
    assert min(log.read_after) >= end


async def test_while_its_own_events_are_under_way_a_cycle_does_not_go_round() -> None:
    class Looking(Cycle):
        turns = 0

        def _fold(self) -> None:
            self.turns += 1
            super()._fold()

    def always(picture: Tally, now: dt.datetime) -> Decision:
        return msgspec.structs.replace(decide(picture, now), wake_at=START)

    log = MemoryLog(VirtualClock())
    source = Reader(log)
    bus = MemoryServer().connect()
    context = Context("main", log, source, bus, VirtualClock(), Path(), "", {})
    cycle = Looking(Pure(CARD, Tally, always), context)
    await cycle.start()
    await source.start()
    running = asyncio.create_task(cycle.run())
    await _ask(log, "a")
    source.offer(await log.read(0, 1))
    await _answers(log, 1)
    turns = cycle.turns
    for _ in range(100):
        await asyncio.sleep(0)
    assert cycle.turns <= turns + 1
    running.cancel()


async def test_time_alone_can_make_a_decision_due() -> None:
    class Alarm(msgspec.Struct):
        rung: bool = False

        def apply(self, recorded: Recorded) -> None:
            self.rung = True

    clock = VirtualClock()

    def ring(picture: Alarm, now: dt.datetime) -> Decision:
        if picture.rung or now == START:
            return Decision(wake_at=START + dt.timedelta(milliseconds=20))
        body = JobQueued(job=JobId("a"), quota=QuotaName("default"))
        return Decision(units=(Unit(appends=(Append(stream="job-a", body=body),)),))

    log = MemoryLog(clock)
    reader = Reader(log, poll_s=0.01)
    log.on_commit = reader.offer
    context = Context("main", log, reader, MemoryServer().connect(), clock, Path(), "", {})
    cycle = Cycle(Pure(Card(name="quota", duty="", reads=("job-",)), Alarm, ring), context)
    await cycle.start()
    async with asyncio.TaskGroup() as group:
        tasks: Sequence[asyncio.Task[None]] = [
            group.create_task(run) for run in (reader.run(), cycle.run())
        ]
        clock.advance(0.001)

        async def said() -> bool:
            clock.advance(0.001)
            return (await log.head()).number == 1

        await wait_until(said, "the alarm")
        for task in tasks:
            task.cancel()


async def test_a_picture_that_broke_leaves_no_snapshot() -> None:
    class Brittle(msgspec.Struct, kw_only=True):
        jobs: list[str] = []

        def apply(self, recorded: Recorded) -> None:
            job = recorded.body.job
            self.jobs.append(job)
            if job == "bad":
                raise InvariantBroken("half folded")

    log = MemoryLog(VirtualClock())
    cycle, reader = _one(log, Pure(CARD, Brittle, lambda _picture, _now: Decision()))
    await cycle.start()
    reading, turning = asyncio.create_task(reader.run()), asyncio.create_task(cycle.run())
    await _ask(log, "good")
    await wait_until(lambda: reader.position.number == 1, "the first event")
    await _ask(log, "bad", "after")
    with pytest.raises(InvariantBroken):
        await turning
    reading.cancel()
    await cycle.stop()
    assert await log.load_snapshots(CARD.name, 2) == []


async def test_a_bus_that_is_away_does_not_end_a_service_that_has_something_to_say_on_it() -> None:
    class Muted(Pure[Tally]):
        async def settle(self, dropped: Sequence[int]) -> None:
            raise Unavailable("not connected to NATS")

    log = MemoryLog(VirtualClock())
    cycle, reader = _one(log, Muted(CARD, Tally, decide))
    await cycle.start()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run) for run in (reader.run(), cycle.run())]
        await _ask(log, "a")
        await _answers(log, 1)
        await _ask(log, "b")
        await _answers(log, 2)
        for task in tasks:
            task.cancel()


async def test_a_long_log_is_folded_as_it_is_read_and_decided_on_only_at_its_end() -> None:
    class Paging(MemoryLog):
        async def read(self, after: int, limit: int) -> list[Recorded]:
            await asyncio.sleep(0.001)
            return await super().read(after, limit)

    log = Paging(VirtualClock())
    for page in range(5):
        await _ask(log, *(f"j{page}-{number}" for number in range(1000)))
    end = (await log.head()).number
    seen: list[int] = []
    most = 0

    def look(picture: Tally, _now: dt.datetime) -> Decision:
        seen.append(len(picture.versions))
        return Decision()

    class Watching(Pure[Tally]):
        def fold(self, events: Sequence[Recorded]) -> None:
            nonlocal most
            most = max(most, len(events))
            super().fold(events)

    cycle, reader = _one(log, Watching(CARD, Tally, look))
    await cycle.start()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run) for run in (reader.run(), cycle.run())]
        await wait_until(lambda: bool(seen), "the first decision")
        for task in tasks:
            task.cancel()
    assert (seen[0], most < end) == (end, True)


async def test_a_snapshot_of_what_a_log_that_was_put_back_has_forgotten_is_not_used() -> None:
    log = MemoryLog(VirtualClock())
    await _ask(log, "a")
    ahead = Snapshot(epoch=1, position=50, fold_version=2, body=msgspec.msgpack.encode(Tally()))
    await log.save_snapshot(CARD.name, ahead)
    async with running(log):
        await _answers(log, 1)
