"""What a bus must give, whoever implements it: the events stream and its followers."""

import asyncio

import pytest
from tests.contracts.bus.rig import Connect, Heard, run_of

from ebbtide.chassis.bus import Bus, Message
from ebbtide.contracts.errors import Conflict, NotFound
from ebbtide.contracts.subjects import HEADER_EPOCH, events, events_stream
from ebbtide.testing.waiting import wait_until


@pytest.fixture
async def stream(bus: Bus, cell: str) -> str:
    await bus.ensure_stream(events_stream(cell), [events(cell)], 1)
    return events_stream(cell)


async def test_the_newest_message_of_a_missing_stream_is_not_found(bus: Bus, cell: str) -> None:
    with pytest.raises(NotFound):
        await bus.last(events_stream(cell))


async def test_an_empty_stream_has_no_newest_message(bus: Bus, stream: str) -> None:
    assert await bus.last(stream) is None


async def test_a_run_gets_the_sequences_it_names(bus: Bus, stream: str, cell: str) -> None:
    await bus.publish_run(run_of(cell, 1, 5))
    last = await bus.last(stream)
    assert last is not None
    assert (last.sequence, last.data) == (5, b"event 5")


async def test_the_newest_message_carries_its_headers(bus: Bus, stream: str, cell: str) -> None:
    await bus.publish_run(run_of(cell, 1, 1, epoch=7))
    last = await bus.last(stream)
    assert last is not None
    assert last.headers[HEADER_EPOCH] == "7"


@pytest.mark.parametrize("first", [1, 2, 3, 5, 9])
async def test_a_run_of_another_history_is_refused_from_any_other_place(
    bus: Bus, stream: str, cell: str, first: int
) -> None:
    await bus.publish_run(run_of(cell, 1, 3))
    with pytest.raises(Conflict):
        await bus.publish_run(run_of(cell, first, 2, epoch=2))
    last = await bus.last(stream)
    assert last is not None
    assert (last.sequence, last.headers[HEADER_EPOCH]) == (3, "1")


async def test_a_run_that_is_refused_in_the_middle_is_refused(
    bus: Bus, stream: str, cell: str
) -> None:
    good = run_of(cell, 1, 4)
    with pytest.raises(Conflict):
        await bus.publish_run([good[0], good[1]._replace(sequence=7), *good[2:]])
    last = await bus.last(stream)
    assert last is not None
    assert last.sequence == 1


async def test_two_runs_at_once_leave_every_message_once(
    connect: Connect, bus: Bus, stream: str, cell: str
) -> None:
    other, seen = await connect(), Heard()
    await asyncio.gather(
        bus.publish_run(run_of(cell, 1, 50)),
        other.publish_run(run_of(cell, 1, 50)),
        return_exceptions=True,
    )
    await bus.follow(stream, 0, seen)
    await wait_until(lambda: len(seen) >= 50, "all messages")
    assert seen.data() == [b"event %d" % n for n in range(1, 51)]


async def test_a_stream_may_begin_at_any_sequence(bus: Bus, cell: str) -> None:
    await bus.ensure_stream(events_stream(cell), [events(cell)], 1001)
    await bus.publish_run(run_of(cell, 1001, 2))
    last = await bus.last(events_stream(cell))
    assert last is not None
    assert last.sequence == 1002


async def test_making_a_stream_again_keeps_what_it_holds(bus: Bus, stream: str, cell: str) -> None:
    await bus.publish_run(run_of(cell, 1, 2))
    await bus.ensure_stream(stream, [events(cell)], 500)
    last = await bus.last(stream)
    assert last is not None
    assert last.sequence == 2


async def test_a_deleted_stream_is_gone(bus: Bus, stream: str) -> None:
    await bus.delete_stream(stream)
    with pytest.raises(NotFound):
        await bus.last(stream)


async def test_deleting_a_stream_that_is_not_there_is_no_error(bus: Bus, cell: str) -> None:
    await bus.delete_stream(events_stream(cell))


async def test_a_foreign_message_takes_a_place_for_good(bus: Bus, stream: str, cell: str) -> None:
    await bus.publish(f"evt.{cell}.w.foreign", b"")
    with pytest.raises(Conflict):
        await bus.publish_run(run_of(cell, 1, 3))
    last = await bus.last(stream)
    assert last is not None
    assert last.sequence == 1


async def test_a_follower_gets_what_is_there_and_what_comes(
    bus: Bus, stream: str, cell: str
) -> None:
    seen = Heard()
    await bus.publish_run(run_of(cell, 1, 3))
    await bus.follow(stream, 1, seen)
    await bus.publish_run(run_of(cell, 4, 3))
    await wait_until(lambda: len(seen) >= 5, "the rest")
    assert seen.sequences() == [2, 3, 4, 5, 6]


async def test_a_follower_from_beyond_the_end_gets_only_what_follows(
    bus: Bus, stream: str, cell: str
) -> None:
    seen = Heard()
    await bus.follow(stream, 2, seen)
    await bus.publish_run(run_of(cell, 1, 4))
    await wait_until(lambda: len(seen) >= 2, "what follows")
    assert seen.sequences() == [3, 4]


async def test_a_follower_may_begin_before_the_stream_is_there(bus: Bus, cell: str) -> None:
    seen = Heard()
    await bus.follow(events_stream(cell), 0, seen)
    await bus.ensure_stream(events_stream(cell), [events(cell)], 1)
    await bus.publish_run(run_of(cell, 1, 1))
    await wait_until(lambda: seen.sequences() == [1], "the first message")


async def test_a_follower_of_a_stream_that_was_made_anew_gets_all_the_new_one_holds(
    bus: Bus, stream: str, cell: str
) -> None:
    seen = Heard()
    await bus.publish_run(run_of(cell, 1, 5))
    await bus.follow(stream, 0, seen)
    await wait_until(lambda: len(seen) == 5, "the old messages")
    await bus.delete_stream(stream)
    await bus.ensure_stream(stream, [events(cell)], 3)
    await bus.publish_run(run_of(cell, 3, 1, epoch=2))
    await wait_until(lambda: len(seen) == 6, "the new message", timeout_s=20)
    assert (seen[-1].sequence, seen[-1].headers[HEADER_EPOCH]) == (3, "2")


async def test_a_slow_follower_of_many_messages_misses_none(
    bus: Bus, stream: str, cell: str
) -> None:
    seen: list[int] = []

    async def slow(message: Message) -> None:
        await asyncio.sleep(0)
        seen.append(message.sequence)

    await bus.follow(stream, 0, slow)
    for first in range(1, 4001, 500):
        await bus.publish_run(run_of(cell, first, 500))
    await wait_until(lambda: len(seen) >= 4000, "all messages", timeout_s=30)
    assert seen == list(range(1, 4001))


async def test_a_closed_follower_hears_nothing_more(bus: Bus, stream: str, cell: str) -> None:
    seen, after = Heard(), Heard()
    follower = await bus.follow(stream, 0, seen)
    await bus.follow(stream, 0, after)
    await follower.close()
    await bus.publish_run(run_of(cell, 1, 1))
    await wait_until(lambda: len(after) == 1, "the other follower hears it")
    assert seen == []
