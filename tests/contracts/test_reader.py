"""What the one reader of a process must give, over the log in memory and in Postgres."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

import pytest

from ebbtide.contracts.envelope import Position, Recorded
from ebbtide.contracts.errors import InvariantBroken, StaleEpoch, Unavailable
from ebbtide.eventlog.log import Log
from ebbtide.eventlog.reader import AHEAD_MAX, PAGE_EVENTS, RECENT_EVENTS, Reader
from ebbtide.testing.logbook import Listening, decided, fill, positions, say, unit
from ebbtide.testing.waiting import wait_until

SOON_S = 0.02
NEVER_S = 3600.0


class House(Protocol):
    async def open(self, on_commit: Callable[[list[Recorded]], None] | None = None) -> Log: ...


@asynccontextmanager
async def running(reader: Reader) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(reader.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def process(house: House, poll_s: float) -> tuple[Log, Reader]:
    """Make a client of the log, and its reader that is offered the client's own commits."""
    readers: list[Reader] = []

    def offer(events: list[Recorded]) -> None:
        readers[0].offer(events)

    log = await house.open(offer)
    readers.append(Reader(log, poll_s))
    return log, readers[0]


def upto(last: int, after: int = 0) -> list[int]:
    return list(range(after + 1, last + 1))


async def test_a_listener_is_handed_all_pages_in_order(log: Log) -> None:
    head = await fill(log, 2 * PAGE_EVENTS + 10)
    reader, listener = Reader(log, NEVER_S), Listening()
    reader.attach(listener, after=0)
    async with running(reader):
        await reader.reached(head, 10)
    assert listener.positions == upto(head)


async def test_listeners_begin_each_behind_its_own_position(log: Log) -> None:
    head = await fill(log, 20)
    reader, early, late = Reader(log, NEVER_S), Listening(), Listening()
    reader.attach(early, after=3)
    reader.attach(late, after=15)
    async with running(reader):
        await reader.reached(head, 10)
    assert (early.positions, late.positions) == (upto(20, 3), upto(20, 15))


async def test_without_listeners_a_reader_begins_at_the_head(log: Log) -> None:
    await fill(log, 20)
    reader = Reader(log, NEVER_S)
    await reader.start()
    assert reader.position == Position(1, 20)


async def test_own_commits_are_delivered_before_the_append_returns(house: House) -> None:
    listener = Listening()
    log, reader = await process(house, NEVER_S)
    reader.attach(listener, after=0)
    await reader.start()
    await log.append(decided(unit(say("a"), say("b"))))
    assert listener.positions == [1, 2]


async def test_what_other_processes_append_is_found_by_polling(house: House) -> None:
    reader, listener = Reader(await house.open(), SOON_S), Listening()
    other = await house.open()
    reader.attach(listener, after=0)
    async with running(reader):
        await fill(other, 5)
        await wait_until(lambda: listener.positions == upto(5), "the poll finds them")


async def test_a_hint_has_the_log_read_at_once(house: House) -> None:
    reader, listener = Reader(await house.open(), NEVER_S), Listening()
    other = await house.open()
    reader.attach(listener, after=0)
    async with running(reader):
        await wait_until(lambda: reader.position.epoch == 1, "the reader runs")
        await fill(other, 5)
        reader.poke(5)
        await wait_until(lambda: listener.positions == upto(5), "the hint is followed")


async def test_a_wrong_hint_does_no_harm(house: House) -> None:
    reader, listener = Reader(await house.open(), SOON_S), Listening()
    other = await house.open()
    reader.attach(listener, after=0)
    async with running(reader):
        reader.poke(1_000_000)
        await fill(other, 5)
        await wait_until(lambda: listener.positions == upto(5), "the reader goes on")


async def test_heard_events_are_delivered_once_and_in_order(log: Log) -> None:
    await fill(log, 50)
    heard = await log.read(0, 50) * 3
    random.Random(7).shuffle(heard)
    reader, listener = Reader(log, NEVER_S), Listening()
    reader.attach(listener, after=0)
    await reader.start()
    for event in heard:
        reader.hear(event)
    assert listener.positions == upto(50)


async def test_the_log_fills_the_gaps_of_what_is_heard(log: Log) -> None:
    reader, listener = Reader(log, NEVER_S), Listening()
    reader.attach(listener, after=0)
    async with running(reader):
        await wait_until(lambda: reader.position.epoch == 1, "the reader runs")
        await fill(log, 30)
        for event in await log.read(0, 30):
            if event.position % 7 == 0:
                reader.hear(event)
        await wait_until(lambda: len(listener.events) >= 28, "the gaps are filled")
    assert listener.positions[:28] == upto(28)


async def test_more_than_is_kept_ahead_is_read_from_the_log(log: Log) -> None:
    head = await fill(log, AHEAD_MAX + 600)
    events = [event for after in (0, PAGE_EVENTS) for event in await log.read(after, PAGE_EVENTS)]
    reader, listener = Reader(log, NEVER_S), Listening()
    reader.attach(listener, after=0)
    await reader.start()
    reader.offer(events[1:])
    async with running(reader):
        await reader.reached(head, 10)
    assert listener.positions == upto(head)


async def _appending(log: Log, count: int) -> None:
    for _ in range(count):
        await log.append(decided(unit(say("a"), say("b"))))
        await asyncio.sleep(0)


async def test_readers_of_several_processes_see_the_same_order(house: House) -> None:
    processes = [await process(house, SOON_S) for _ in range(3)]
    listeners = [Listening() for _ in processes]
    async with AsyncExitStack() as stack:
        for (_, reader), listener in zip(processes, listeners, strict=True):
            reader.attach(listener, after=0)
            await reader.start()
            _ = await stack.enter_async_context(running(reader))
        await asyncio.gather(*(_appending(log, 40) for log, _ in processes))
        await wait_until(lambda: all(len(one.events) == 240 for one in listeners), "all read all")
    written = await processes[0][0].read(0, 1_000)
    assert [listener.events for listener in listeners] == [written] * 3


@pytest.mark.parametrize("behind", [0, 5, RECENT_EVENTS // 2, RECENT_EVENTS + 100])
async def test_a_late_listener_is_caught_up_while_events_go_on_coming(
    house: House, behind: int
) -> None:
    log, reader = await process(house, NEVER_S)
    late = Listening()
    async with running(reader):
        await wait_until(lambda: reader.position.epoch == 1, "the reader runs")
        head = await fill(log, RECENT_EVENTS + 200)
        appending = asyncio.create_task(_appending(log, 100))
        await asyncio.sleep(0)
        reader.attach(late, after=head - behind)
        await appending
        await reader.reached(head + 200, 10)
    assert late.positions == upto(head + 200, head - behind)


async def test_a_listener_attached_again_begins_again(house: House) -> None:
    log, reader = await process(house, NEVER_S)
    listener = Listening()
    reader.attach(listener, after=0)
    async with running(reader):
        await fill(log, 5)
        await reader.reached(5, 10)
        reader.attach(listener, after=2)
        await fill(log, 2)
        await reader.reached(7, 10)
    assert listener.positions == [1, 2, 3, 4, 5, 3, 4, 5, 6, 7]


async def test_a_listener_ahead_of_the_reader_is_handed_nothing_twice(log: Log) -> None:
    await fill(log, 10)
    reader, ahead, behind = Reader(log, SOON_S), Listening(), Listening()
    reader.attach(behind, after=0)
    await reader.start()
    reader.attach(ahead, after=10)
    async with running(reader):
        await reader.reached(10, 10)
        await fill(log, 3)
        await wait_until(lambda: len(behind.events) == 13, "both read on")
    assert (behind.positions, ahead.positions) == (upto(13), upto(13, 10))


async def test_waiting_for_a_position_that_does_not_come_ends(log: Log) -> None:
    reader = Reader(log, SOON_S)
    async with running(reader):
        with pytest.raises(Unavailable):
            await reader.reached(1, SOON_S)


async def test_a_new_epoch_without_events_ends_the_reader(log: Log) -> None:
    reader = Reader(log, SOON_S)
    async with running(reader) as task:
        await wait_until(lambda: reader.position.epoch == 1, "the reader runs")
        await log.raise_epoch()
        with pytest.raises(StaleEpoch):
            await asyncio.wait_for(task, 10)


async def test_an_event_of_a_newer_epoch_ends_the_reader_undelivered(log: Log) -> None:
    reader, listener = Reader(log, NEVER_S), Listening()
    reader.attach(listener, after=0)
    async with running(reader) as task:
        await wait_until(lambda: reader.position.epoch == 1, "the reader runs")
        await log.append(decided(unit(say("a")), read_to=await log.raise_epoch()))
        reader.hear((await log.read(0, 1))[0])
        with pytest.raises(StaleEpoch):
            await asyncio.wait_for(task, 10)
    assert listener.events == []


async def test_events_of_older_epochs_are_read_from_the_log(log: Log) -> None:
    await fill(log, 3)
    await log.raise_epoch()
    reader, listener = Reader(log, NEVER_S), Listening()
    reader.attach(listener, after=0)
    async with running(reader):
        await reader.reached(3, 10)
    assert (listener.positions, reader.position) == ([1, 2, 3], Position(2, 3))


async def test_what_is_heard_of_an_older_epoch_is_not_delivered(log: Log) -> None:
    await log.append(decided(unit(say("a"))))
    [lost] = await log.read(0, 1)
    await log.raise_epoch()
    reader, listener = Reader(log, NEVER_S), Listening()
    reader.attach(listener, after=0)
    await reader.start()
    reader.hear(lost)
    assert listener.events == []


async def test_a_listener_that_knows_more_than_the_log_holds_stops_the_start(log: Log) -> None:
    reader = Reader(log)
    reader.attach(Listening(), after=5)
    with pytest.raises(StaleEpoch):
        await reader.start()


class _Raising:
    def deliver(self, events: Sequence[Recorded]) -> None:
        raise ValueError(positions(events))


async def test_a_listener_that_raises_ends_the_reader(house: House) -> None:
    log, reader = await process(house, SOON_S)
    reader.attach(_Raising(), after=0)
    async with running(reader) as task:
        await fill(log, 1)
        with pytest.raises(InvariantBroken):
            await asyncio.wait_for(task, 10)


async def test_a_broken_reader_delivers_nothing_more(house: House) -> None:
    log, reader = await process(house, NEVER_S)
    listener = Listening()
    reader.attach(_Raising(), after=0)
    reader.attach(listener, after=0)
    await reader.start()
    await fill(log, 3)
    assert listener.events == []
