"""What the log must give, whoever keeps it: each promise is asked of memory and of Postgres."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest

from ebbtide.contracts.envelope import Appended, Position, Recorded
from ebbtide.contracts.errors import Conflict, InvariantBroken, Malformed, StaleEpoch
from ebbtide.eventlog.entries import BODY_BYTES_MAX
from ebbtide.eventlog.log import Checkpoint, Log, Snapshot
from ebbtide.testing.logbook import decided, fill, positions, say, unit

APPENDERS, ROUNDS = 16, 12


class House(Protocol):
    async def open(self, on_commit: Callable[[list[Recorded]], None] | None = None) -> Log: ...

    async def damage_newest_snapshot(self, service: str) -> None: ...


# 1. One order: positions are gapless and in commit order, whatever writes concurrently.


async def _append_much(log: Log, name: str) -> None:
    for turn in range(ROUNDS):
        own = [unit(say(f"own-{name}"), say("shared")) for _ in range(turn % 4 + 1)]
        doomed = unit(say(f"own-{name}", expected=1_000))
        await log.append(decided(*own, doomed))


async def _read_all_meanwhile(log: Log, done: asyncio.Event) -> list[Recorded]:
    """Read on as readers do; whatever came late behind what was read already would be missing."""
    seen: list[Recorded] = []
    last_look = False
    while not last_look:
        last_look = done.is_set()
        while page := await log.read(len(seen), 100):
            seen.extend(page)
        await asyncio.sleep(0)
    return seen


@pytest.fixture
async def history(house: House) -> list[Recorded]:
    """What a reader saw while many appended at once, through four clients."""
    logs = [await house.open() for _ in range(4)]
    done = asyncio.Event()
    reading = asyncio.create_task(_read_all_meanwhile(await house.open(), done))
    await asyncio.gather(*(_append_much(logs[n % 4], str(n)) for n in range(APPENDERS)))
    done.set()
    return await reading


async def test_positions_are_gapless_under_concurrent_appenders(history: list[Recorded]) -> None:
    per_appender = sum(2 * (turn % 4 + 1) for turn in range(ROUNDS))
    assert positions(history) == list(range(1, APPENDERS * per_appender + 1))


async def test_versions_are_gapless_under_concurrent_appenders(history: list[Recorded]) -> None:
    versions: dict[str, list[int]] = {}
    for event in history:
        versions.setdefault(event.stream, []).append(event.version)
    assert all(seen == list(range(1, len(seen) + 1)) for seen in versions.values())


async def test_stamps_never_fall_under_concurrent_appenders(history: list[Recorded]) -> None:
    stamps = [event.at for event in history]
    assert stamps == sorted(stamps)


async def test_units_of_concurrent_appenders_are_not_torn(history: list[Recorded]) -> None:
    pairs = zip(history[::2], history[1::2], strict=True)
    assert all(own.stream.startswith("own-") and shared.stream == "shared" for own, shared in pairs)


async def test_an_answer_names_the_positions_of_each_unit(log: Log) -> None:
    appended = await log.append(decided(unit(say("a"), say("b")), unit(say("c"))))
    assert appended == Appended(positions=((1, 2), (3, 3)), dropped=(), revision=0, epoch=1)


async def test_the_head_is_the_newest_event(log: Log) -> None:
    await fill(log, 3)
    assert await log.head() == Position(1, 3)


async def test_an_empty_log_begins_before_its_first_position(log: Log) -> None:
    assert (await log.head(), await log.read(0, 10)) == (Position(1, 0), [])


async def test_a_page_holds_what_follows_and_no_more_than_asked(log: Log) -> None:
    await fill(log, 10)
    assert positions(await log.read(4, 3)) == [5, 6, 7]


async def test_a_stream_is_read_whole_and_in_order(log: Log) -> None:
    await log.append(decided(unit(say("a"), say("b"), say("a"))))
    await log.append(decided(unit(say("a"))))
    stream = await log.read_stream("a")
    assert [(event.position, event.version) for event in stream] == [(1, 1), (3, 2), (4, 3)]


async def test_an_event_is_read_as_it_was_said(log: Log) -> None:
    append = say("a", text="Grüße, 世界 \x00 🎉", actor="jörg")
    batch = decided(unit(append), service="quota", revision=0)
    await log.append(batch)
    [event] = await log.read(0, 1)
    said = (event.body, event.actor, event.service, event.decided_at, event.read_to, event.rules)
    assert said == (append.body, "jörg", "quota", batch.decided_at, 0, 1)


async def test_a_commit_is_announced_as_it_is_read_later(house: House) -> None:
    announced: list[Recorded] = []
    log = await house.open(announced.extend)
    await log.append(decided(unit(say("a")), unit(say("b", expected=7)), unit(say("a"), say("c"))))
    assert announced == await log.read(0, 10)


async def test_a_commit_is_announced_before_its_append_returns(house: House) -> None:
    announced: list[Recorded] = []
    log = await house.open(announced.extend)
    await asyncio.gather(*(log.append(decided(unit(say(str(n))))) for n in range(20)))
    assert positions(announced) == list(range(1, 21))


# 2. One order per stream: a unit whose expectation fails is dropped whole and returned.


async def test_a_unit_that_expects_a_new_stream_falls_when_it_exists(log: Log) -> None:
    await log.append(decided(unit(say("a"))))
    appended = await log.append(decided(unit(say("a", expected=0))))
    assert (appended.positions, appended.dropped) == ((None,), (0,))


async def test_a_unit_falls_whole(log: Log) -> None:
    await log.append(decided(unit(say("a"))))
    await log.append(decided(unit(say("b"), say("a", expected=0), say("c"))))
    assert await log.head() == Position(1, 1)


async def test_units_beside_a_dropped_one_stand(log: Log) -> None:
    await log.append(decided(unit(say("a"))))
    appended = await log.append(decided(unit(say("b")), unit(say("a", expected=0)), unit(say("c"))))
    assert (appended.positions, appended.dropped) == (((2, 2), None, (3, 3)), (1,))


async def test_earlier_units_never_break_a_later_one(log: Log) -> None:
    await log.append(decided(unit(say("a"))))
    read_to = await log.head()
    appended = await log.append(
        decided(
            unit(say("a", expected=1), say("a", expected=1)),
            unit(say("b"), unmoved=["a"]),
            unit(say("a", expected=1)),
            read_to=read_to,
        )
    )
    assert appended.dropped == ()


async def test_what_others_append_at_the_same_time_breaks_an_expectation(house: House) -> None:
    logs = [await house.open() for _ in range(2)]
    claim = decided(unit(say("a", expected=0)))
    answers = await asyncio.gather(*(logs[n % 2].append(claim) for n in range(10)))
    assert sorted(answer.dropped for answer in answers) == [(), *[(0,)] * 9]


async def test_a_unit_falls_when_a_guarded_stream_has_moved(log: Log) -> None:
    await log.append(decided(unit(say("node-1"))))
    appended = await log.append(decided(unit(say("a"), unmoved=["node-1"])))
    assert appended.dropped == (0,)


async def test_a_unit_stands_when_its_guarded_streams_rest(log: Log) -> None:
    await log.append(decided(unit(say("node-1"))))
    read_to = await log.head()
    await log.append(decided(unit(say("node-2"))))
    batch = decided(unit(say("a"), unmoved=["node-1", "node-3"]), read_to=read_to)
    assert (await log.append(batch)).dropped == ()


async def test_what_others_append_at_the_same_time_moves_a_guarded_stream(log: Log) -> None:
    guarded = decided(unit(say("a"), unmoved=["node-1"]))
    _, answer = await asyncio.gather(log.append(decided(unit(say("node-1")))), log.append(guarded))
    assert answer.dropped == (0,)


async def test_a_closed_stream_takes_nothing_more(log: Log) -> None:
    await log.append(decided(unit(say("a", closes=True))))
    appended = await log.append(decided(unit(say("a"), say("b")), unit(say("c"))))
    assert (appended.dropped, appended.positions) == ((0,), (None, (2, 2)))


async def test_a_stream_that_is_closed_at_the_same_time_takes_nothing_more(log: Log) -> None:
    closing, late = decided(unit(say("a", closes=True))), decided(unit(say("a")))
    _, answer = await asyncio.gather(log.append(closing), log.append(late))
    assert answer.dropped == (0,)


async def test_a_dropped_unit_closes_nothing(log: Log) -> None:
    await log.append(decided(unit(say("a", expected=5, closes=True))))
    assert (await log.append(decided(unit(say("a"))))).dropped == ()


async def test_a_batch_that_says_more_on_a_stream_it_closes_is_broken(log: Log) -> None:
    with pytest.raises(InvariantBroken):
        await log.append(decided(unit(say("a", closes=True)), unit(say("a"))))


# 3. A service's position is recorded with the events that it decided at it.


async def test_a_service_that_never_appended_is_at_the_beginning(log: Log) -> None:
    assert await log.checkpoint("quota") == Checkpoint(revision=0, read_to=Position(1, 0))


async def test_an_append_moves_the_checkpoint(log: Log) -> None:
    read_to = Position(1, await fill(log, 3))
    await log.append(decided(unit(say("a")), service="quota", revision=0, read_to=read_to))
    assert await log.checkpoint("quota") == Checkpoint(revision=1, read_to=read_to)


async def test_an_append_whose_units_all_fall_moves_the_checkpoint(log: Log) -> None:
    batch = decided(unit(say("a", expected=9)), service="quota", revision=0)
    appended = await log.append(batch)
    assert (appended.revision, (await log.checkpoint("quota")).revision) == (1, 1)


async def test_an_append_without_units_moves_the_checkpoint(log: Log) -> None:
    await log.append(decided(service="quota", revision=0))
    assert (await log.checkpoint("quota")).revision == 1


async def test_a_door_keeps_no_checkpoint(log: Log) -> None:
    await log.append(decided(unit(say("a")), service="api"))
    assert (await log.checkpoint("api")).revision == 0


# 4. A decision is taken once: the revision decides between replicas.


async def test_of_two_replicas_that_decide_at_once_one_stands(house: House) -> None:
    replicas = [await house.open() for _ in range(2)]
    batch = decided(unit(say("a")), service="quota", revision=0)
    answers = await asyncio.gather(
        *(replica.append(batch) for replica in replicas), return_exceptions=True
    )
    assert sorted(type(answer).__name__ for answer in answers) == ["Appended", "Conflict"]


async def test_a_refused_revision_records_nothing(log: Log) -> None:
    with pytest.raises(Conflict):
        await log.append(decided(unit(say("a")), service="quota", revision=3))
    assert (await log.head(), (await log.checkpoint("quota")).revision) == (Position(1, 0), 0)


async def test_a_refusal_does_not_touch_what_others_append(log: Log) -> None:
    wrong = log.append(decided(unit(say("a")), service="quota", revision=3))
    right = log.append(decided(unit(say("b")), service="scheduler", revision=0))
    answers = await asyncio.gather(wrong, right, return_exceptions=True)
    assert isinstance(answers[0], Conflict)
    assert isinstance(answers[1], Appended)


# 6. Nothing decided in an older epoch is ever recorded. (5 is asked in tests/integration.)


async def test_a_new_epoch_begins_at_the_head(log: Log) -> None:
    await fill(log, 3)
    assert (await log.raise_epoch(), await log.head()) == (Position(2, 3), Position(2, 3))


@pytest.mark.parametrize("revision", [None, 0])
async def test_what_was_decided_in_an_older_epoch_is_refused(
    log: Log, revision: int | None
) -> None:
    await log.raise_epoch()
    with pytest.raises(StaleEpoch):
        await log.append(decided(unit(say("a")), revision=revision))
    assert await log.head() == Position(2, 0)


async def test_what_was_decided_on_events_that_the_log_lost_is_refused(log: Log) -> None:
    with pytest.raises(StaleEpoch):
        await log.append(decided(unit(say("a")), read_to=Position(1, 1)))


async def test_events_carry_the_epoch_in_which_they_were_recorded(log: Log) -> None:
    await log.append(decided(unit(say("a"))))
    await log.append(decided(unit(say("b")), read_to=await log.raise_epoch()))
    assert [(event.epoch, event.position) for event in await log.read(0, 9)] == [(1, 1), (2, 2)]


# Snapshots.


def _snapshot(position: int, *, epoch: int = 1, fold: int = 1) -> Snapshot:
    return Snapshot(epoch=epoch, position=position, fold_version=fold, body=b"%d" % position * 999)


async def test_the_newest_two_snapshots_are_kept_newest_first(log: Log) -> None:
    for position in (20, 30, 10, 40):
        await log.save_snapshot("quota", _snapshot(position))
    assert await log.load_snapshots("quota", 1) == [_snapshot(40), _snapshot(30)]


async def test_a_snapshot_of_the_same_position_takes_the_other_ones_place(log: Log) -> None:
    await log.save_snapshot("quota", _snapshot(10, fold=1))
    await log.save_snapshot("quota", _snapshot(10, fold=2))
    assert (await log.load_snapshots("quota", 1), await log.load_snapshots("quota", 2)) == (
        [],
        [_snapshot(10, fold=2)],
    )


async def test_snapshots_of_other_services_are_left_alone(log: Log) -> None:
    await log.save_snapshot("quota", _snapshot(10))
    for position in (20, 30, 40):
        await log.save_snapshot("fleet", _snapshot(position))
    assert await log.load_snapshots("quota", 1) == [_snapshot(10)]


async def test_a_snapshot_of_another_fold_is_not_given(log: Log) -> None:
    await log.save_snapshot("quota", _snapshot(10, fold=1))
    assert await log.load_snapshots("quota", 2) == []


async def test_a_snapshot_of_an_older_epoch_is_not_given(log: Log) -> None:
    await log.save_snapshot("quota", _snapshot(10))
    await log.raise_epoch()
    await log.save_snapshot("quota", _snapshot(5, epoch=2))
    assert await log.load_snapshots("quota", 1) == [_snapshot(5, epoch=2)]


async def test_a_damaged_snapshot_is_skipped(house: House, log: Log) -> None:
    await log.save_snapshot("quota", _snapshot(10))
    await log.save_snapshot("quota", _snapshot(20))
    await house.damage_newest_snapshot("quota")
    assert await log.load_snapshots("quota", 1) == [_snapshot(10)]


# What cannot be stored is refused to who said it, and to nobody else.

Refused = Callable[[Log], Awaitable[Appended]]


@pytest.mark.parametrize(
    "refused",
    [
        lambda log: log.append(decided(unit(say("a", actor="nul \x00")))),
        lambda log: log.append(decided(unit(say("half \ud800")))),
        lambda log: log.append(decided(unit(say("a", text="x" * BODY_BYTES_MAX)))),
    ],
    ids=["nul", "half a letter", "too large"],
)
async def test_what_cannot_be_stored_is_refused_and_its_neighbour_is_not(
    log: Log, refused: Refused
) -> None:
    answers = await asyncio.gather(
        refused(log), log.append(decided(unit(say("b")))), return_exceptions=True
    )
    assert isinstance(answers[0], Malformed)
    assert isinstance(answers[1], Appended)
