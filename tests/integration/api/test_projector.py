"""The projector: memory at once, views a moment later, nothing lost over restarts and epochs."""

import asyncio
from collections.abc import Callable

import pytest

from ebbtide.api import projector as projectors
from ebbtide.api.feed import Feed
from ebbtide.api.memory_views import MemoryViews
from ebbtide.api.model import Alive, Picture
from ebbtide.api.postgres_views import PostgresViews
from ebbtide.api.projector import Projector
from ebbtide.api.views import Batch, JobQuery, Views
from ebbtide.contracts.envelope import Append, Position, Recorded, Unit
from ebbtide.contracts.errors import InvariantBroken, StaleEpoch, Unavailable
from ebbtide.contracts.ids import JobId
from ebbtide.eventlog.log import Decided
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.eventlog.reader import Reader
from ebbtide.testing import said
from ebbtide.testing.builders import START, TEAM, VirtualClock, job_name, registration, spec
from ebbtide.testing.stage import Stage
from ebbtide.testing.waiting import wait_until


@pytest.fixture(params=["memory", "postgres"])
def make_views(request: pytest.FixtureRequest) -> Callable[[], Views]:
    """Give a way to open the same views again and again."""
    if request.param == "postgres":
        url = request.getfixturevalue("database_url")
        return lambda: PostgresViews(url)
    kept = MemoryViews()
    return lambda: kept


async def _say(log: MemoryLog, *appends: Append) -> None:
    head = await log.head()
    unit = Unit(appends=appends)
    decided = Decided(service="test", read_to=head, decided_at=START, units=(unit,))
    await log.append(decided)


class Running:
    """A projector with its reader, running."""

    def __init__(self, log: MemoryLog, views: Views) -> None:
        self.reader = Reader(log, poll_s=0.01)
        log.on_commit = self.reader.offer
        self.views = views
        self.projector = Projector(log, self.reader, views, Feed())

    async def __aenter__(self) -> Projector:
        await self.projector.start()
        self.tasks = [
            asyncio.create_task(self.reader.run()),
            asyncio.create_task(self.projector.run()),
        ]
        return self.projector

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.projector.stop()


async def _told(projector: Projector, position: int) -> None:
    await wait_until(lambda: projector.position == position, f"position {position} is delivered")


def _phase(projector: Projector, job: JobId) -> str:
    alive = projector.fresh(job)
    assert alive is not None
    return alive.row.phase


async def test_an_event_is_in_memory_as_soon_as_it_is_delivered(
    make_views: Callable[[], Views],
) -> None:
    log = MemoryLog(VirtualClock())
    async with Running(log, make_views()) as projector:
        await _say(log, said.submitted(job_name(1)))
        await _told(projector, 1)
        assert _phase(projector, job_name(1)) == "submitted"


async def test_a_page_holds_everything_that_was_folded_before(
    make_views: Callable[[], Views],
) -> None:
    log = MemoryLog(VirtualClock())
    async with Running(log, make_views()) as projector:
        for number in range(1, 6):
            await _say(log, said.submitted(job_name(number)))
            await _told(projector, number)
            assert len(await projector.page(JobQuery(), 5)) == number


async def test_a_restart_goes_on_from_the_views(make_views: Callable[[], Views]) -> None:
    log = MemoryLog(VirtualClock())
    async with Running(log, make_views()) as projector:
        await _say(log, said.submitted(job_name(1)))
        await _say(log, said.submitted(job_name(2)))
        await _told(projector, 2)
    await _say(log, said.queued(job_name(1)))
    async with Running(log, make_views()) as projector:
        assert projector.position == 3
        assert _phase(projector, job_name(1)) == "queued"
        assert projector.picture.counts == {TEAM: {"submitted": 1, "queued": 1}}


async def test_a_new_epoch_rebuilds_the_views_from_the_beginning(
    make_views: Callable[[], Views],
) -> None:
    log = MemoryLog(VirtualClock())
    async with Running(log, make_views()) as projector:
        await _say(log, said.submitted(job_name(1)))
        await _told(projector, 1)
    await log.raise_epoch()
    views = make_views()
    async with Running(log, views) as projector:
        assert projector.fresh(job_name(1)) is not None
        await projector.page(JobQuery(), 5)
        assert (await views.load()).epoch == 2


async def test_an_event_of_a_newer_epoch_ends_the_part(make_views: Callable[[], Views]) -> None:
    log = MemoryLog(VirtualClock())
    views = make_views()
    projector = Projector(log, Reader(log), views, Feed())
    await projector.start()
    running = asyncio.create_task(projector.run())
    await log.raise_epoch()
    await _say(log, said.submitted(job_name(1)))
    projector.deliver(await log.read(0, 10))
    with pytest.raises(StaleEpoch):
        await running
    await projector.stop()


async def test_a_job_that_ended_leaves_memory_and_stays_in_the_views(
    make_views: Callable[[], Views],
) -> None:
    log = MemoryLog(VirtualClock())
    async with Running(log, make_views()) as projector:
        await _say(log, said.submitted(job_name(1)))
        await _say(log, said.stopped(job_name(1), 1))
        await _told(projector, 2)
        await projector.page(JobQuery(), 5)
        assert projector.picture.jobs == {}
        assert projector.fresh(job_name(1)) is None
        ended = await projector.job(job_name(1))
        assert ended is not None
        assert ended.row.phase == "stopped"


async def test_catching_up_goes_by_pages(
    make_views: Callable[[], Views], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projectors, "PAGE", 3)
    log = MemoryLog(VirtualClock())
    for number in range(1, 11):
        await _say(log, said.submitted(job_name(number)))
    async with Running(log, make_views()) as projector:
        assert projector.position == 10
        assert len(await projector.page(JobQuery(), 5)) == 10


class Failing(MemoryViews):
    """Views whose store is away for a while."""

    away = False

    async def save(self, batch: Batch) -> None:
        if self.away:
            raise Unavailable("away")
        await super().save(batch)


async def test_a_store_that_is_away_for_a_while_gets_everything_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(projectors, "RETRY_S", 0.01)
    log, views = MemoryLog(VirtualClock()), Failing()
    async with Running(log, views) as projector:
        views.away = True
        await _say(log, said.submitted(job_name(1)))
        await _say(log, said.queued(job_name(1)))
        await _told(projector, 2)
        with pytest.raises(Unavailable):
            await projector.page(JobQuery(), 0.1)
        assert _phase(projector, job_name(1)) == "queued"
        views.away = False
        assert [row.phase for row in await projector.page(JobQuery(), 5)] == ["queued"]


async def test_too_much_that_waits_for_the_store_ends_the_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(projectors, "DIRTY_MAX", 2)
    log, views = MemoryLog(VirtualClock()), Failing()
    running = Running(log, views)
    async with running:
        views.away = True
        for number in range(1, 5):
            await _say(log, said.submitted(job_name(number)))
        with pytest.raises(Unavailable):
            await running.tasks[1]
        views.away = False


async def test_a_mistake_of_ours_ends_the_part_instead_of_being_tried_for_ever() -> None:
    class Wrong(MemoryViews):
        async def save(self, batch: Batch) -> None:
            raise InvariantBroken("the views' database refused a statement")

    log = MemoryLog(VirtualClock())
    running = Running(log, Wrong())
    async with running:
        await _say(log, said.submitted(job_name(1)))
        with pytest.raises(InvariantBroken):
            await asyncio.wait_for(running.tasks[1], 5)


@pytest.mark.parametrize("seed", range(8))
async def test_views_are_the_fold_of_the_log_wherever_it_restarts(
    make_views: Callable[[], Views], seed: int
) -> None:
    """Tell a story with every service on a stage, restart at several places, compare."""
    stage = Stage(registration("n1"), registration("n2"), seed=seed)
    for number in range(4):
        await stage.submit(spec(workers=1 + number % 3))
    for _ in range(60):
        await stage.step()
    await stage.stop(job_name(1 + seed % 4))
    await stage.rest()
    for _ in range(3):
        await stage.pass_time(2.0)
    expected = Picture()
    ended: dict[JobId, Alive] = {}
    for recorded in stage.events:
        changed = expected.apply(recorded)
        if isinstance(changed, Alive):
            ended[changed.row.id] = changed
    for cut in sorted({0, 1, len(stage.events) // 3, len(stage.events) // 2, len(stage.events)}):
        log = Cut(stage, cut)
        projector = Projector(log, Reader(log), make_views(), Feed())
        await projector.start()
        await projector.stop()
    views = make_views()
    await views.open()
    assert (await views.load()).picture == expected
    assert {name: await views.job(name) for name in ended} == ended
    await views.close()


class Cut(MemoryLog):
    """A stage's log as it was at a position."""

    def __init__(self, stage: Stage, cut: int) -> None:
        super().__init__(stage.clock)
        self._whole, self._cut = stage.log, cut

    async def head(self) -> Position:
        return (await self._whole.head())._replace(number=self._cut)

    async def read(self, after: int, limit: int) -> list[Recorded]:
        found = await self._whole.read(after, limit)
        return [one for one in found if one.position <= self._cut]
