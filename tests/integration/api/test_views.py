"""What every store of views must do; asked of memory and of Postgres."""

from collections.abc import AsyncIterator

import asyncpg
import msgspec
import pytest

from ebbtide.api.memory_views import MemoryViews
from ebbtide.api.model import Alive, Held, Row, Token
from ebbtide.api.postgres_views import PostgresViews, _in_our_words
from ebbtide.api.views import FOLD_VERSION, Batch, JobQuery, Views
from ebbtide.contracts.errors import StaleEpoch, Unavailable
from ebbtide.contracts.http import Phase
from ebbtide.contracts.ids import TokenId, Workspace
from ebbtide.model.node import Node
from ebbtide.testing.builders import START, TEAM, job_name, spec
from ebbtide.testing.said import NAME, NODE, POOL


@pytest.fixture(params=["memory", "postgres"])
async def views(request: pytest.FixtureRequest) -> AsyncIterator[Views]:
    views: Views = (
        MemoryViews()
        if request.param == "memory"
        else PostgresViews(request.getfixturevalue("database_url"))
    )
    await views.open()
    await views.reset(1)
    yield views
    await views.close()


def _alive(number: int, **fields: object) -> Alive:
    given: dict[str, object] = {
        "id": job_name(number),
        "name": "test",
        "workspace": TEAM,
        "actor": "token:a",
        "quota": "default",
        "priority": 5,
        "workers": 1,
        "submitted": number,
        "submitted_at": START,
        "position": number,
    }
    return Alive(row=msgspec.convert(given | fields, Row), spec=spec())


def _batch(
    position: int,
    *jobs: Alive,
    nodes: tuple[Node, ...] = (),
    tokens: tuple[Token, ...] = (),
    counts: dict[Workspace, dict[Phase, int]] | None = None,
    epoch: int = 1,
) -> Batch:
    return Batch(
        epoch=epoch,
        position=position,
        jobs=jobs,
        nodes=nodes,
        tokens=tokens,
        counts=counts or {},
    )


async def test_what_was_saved_is_loaded_with_its_position(views: Views) -> None:
    node = Node(
        number=NODE,
        name=NAME,
        pool=POOL,
        address="127.0.0.1",
        boot="b",
        capacity={"cpu": 4000},
        version=1,
    )
    token = Token(
        id=TokenId("t"), kind="member", subject="team", secret_sha256="x", created_at=START
    )
    alive = _alive(1, held=(Held("p1", (NODE,)),))
    counts: dict[Workspace, dict[Phase, int]] = {TEAM: {"submitted": 1}}
    await views.save(_batch(9, alive, nodes=(node,), tokens=(token,), counts=counts))
    stored = await views.load()
    assert (stored.epoch, stored.position) == (1, 9)
    assert stored.picture.jobs == {alive.row.id: alive}
    assert stored.picture.nodes == {1: node}
    assert stored.picture.tokens == {"t": token}
    assert stored.picture.counts == counts
    assert stored.picture.used == {1: {"cpu": 1000, "memory": 1024}}


async def test_a_job_that_ended_is_not_loaded_but_can_be_read(views: Views) -> None:
    alive = _alive(1, phase="failed")
    await views.save(_batch(1, alive))
    assert (await views.load()).picture.jobs == {}
    assert await views.job(alive.row.id) == alive


async def test_a_later_batch_replaces_what_an_earlier_one_said(views: Views) -> None:
    await views.save(_batch(1, _alive(1)))
    later = _alive(1, phase="queued", position=2)
    await views.save(_batch(2, later))
    assert await views.job(later.row.id) == later


async def test_a_batch_that_is_not_ahead_changes_nothing(views: Views) -> None:
    newer = _alive(1, phase="queued", position=5)
    await views.save(_batch(5, newer))
    await views.save(_batch(5, _alive(1)))
    await views.save(_batch(4, _alive(2)))
    assert await views.job(newer.row.id) == newer
    assert await views.job(job_name(2)) is None


async def test_a_batch_of_another_epoch_is_refused(views: Views) -> None:
    with pytest.raises(StaleEpoch):
        await views.save(_batch(1, _alive(1), epoch=2))


async def test_a_reset_forgets_everything(views: Views) -> None:
    await views.save(_batch(1, _alive(1), counts={TEAM: {"submitted": 1}}))
    await views.reset(2)
    stored = await views.load()
    assert (stored.epoch, stored.position) == (2, 0)
    assert stored.picture.jobs == {}
    assert stored.picture.counts == {}
    assert await views.page(JobQuery()) == []


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        (JobQuery(), [4, 3, 2, 1]),
        (JobQuery(limit=2), [4, 3]),
        (JobQuery(before=3), [2, 1]),
        (JobQuery(workspace=Workspace("other")), [4]),
        (JobQuery(phases=("queued", "failed")), [3, 2]),
        (JobQuery(name="named"), [2]),
        (JobQuery(actor="token:b"), [1]),
        (JobQuery(workspace=TEAM, phases=("queued",), before=3), [2]),
        (JobQuery(name="nobody"), []),
    ],
)
async def test_a_page_gives_what_was_chosen_newest_first(
    views: Views, query: JobQuery, numbers: list[int]
) -> None:
    await views.save(
        _batch(
            4,
            _alive(1, actor="token:b"),
            _alive(2, phase="queued", name="named"),
            _alive(3, phase="failed"),
            _alive(4, workspace="other"),
        )
    )
    assert [row.submitted for row in await views.page(query)] == numbers


async def test_an_unknown_job_is_none(views: Views) -> None:
    assert await views.job(job_name(1)) is None


async def test_text_of_every_kind_comes_back_as_it_was(views: Views) -> None:
    alive = _alive(1, why="a \u202e \x07 'quoted' \"twice\" \\ line\nline", code="x.y")
    await views.save(_batch(1, alive))
    assert await views.job(alive.row.id) == alive


async def test_views_of_another_fold_are_empty(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = PostgresViews(database_url)
    await views.open()
    await views.reset(1)
    await views.save(_batch(1, _alive(1)))
    monkeypatch.setattr("ebbtide.api.postgres_views.FOLD_VERSION", FOLD_VERSION + 1)
    stored = await views.load()
    await views.close()
    assert (stored.epoch, stored.position, stored.picture.jobs) == (0, 0, {})


async def test_a_database_that_is_away_is_unavailable() -> None:
    views = PostgresViews("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(Unavailable):
        await views.open()


async def test_opening_again_changes_nothing(database_url: str) -> None:
    for _ in range(2):
        views = PostgresViews(database_url)
        await views.open()
        if not (await views.load()).epoch:
            await views.reset(1)
            await views.save(_batch(1, _alive(1)))
        await views.close()
    again = PostgresViews(database_url)
    await again.open()
    stored = await again.load()
    await again.close()
    assert (stored.position, len(stored.picture.jobs)) == (1, 1)
    assert msgspec.to_builtins(stored.picture.jobs[job_name(1)].row)["phase"] == "submitted"


async def test_views_are_read_again_after_the_driver_lost_track_of_a_connection(
    database_url: str,
) -> None:
    views = PostgresViews(database_url)
    await views.open()
    await views.reset(1)
    with pytest.raises(Unavailable):
        async with _in_our_words(views._writer):
            raise asyncpg.InternalClientError("another operation is in progress")
    await views.reset(1)
    await views.close()
