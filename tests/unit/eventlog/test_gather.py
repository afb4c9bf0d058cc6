"""Which appends go into one call, and in which order."""

import asyncio
from collections import deque

from ebbtide.contracts.envelope import Unit
from ebbtide.eventlog.entries import entries_of
from ebbtide.eventlog.gather import CALL_EVENTS_MAX, Gathered, Waiting, columns, waiting
from ebbtide.eventlog.log import Decided
from ebbtide.testing.logbook import decided, say, unit


def _waiting(batch: Decided) -> Waiting:
    return waiting(batch, entries_of(batch), asyncio.get_running_loop().create_future())


async def _calls(*batches: Decided) -> list[int]:
    """Count the batches of each call that ``batches`` take."""
    queue, sizes = deque(_waiting(batch) for batch in batches), []
    while queue:
        gathered = Gathered()
        gathered.take_from(queue)
        sizes.append(len(gathered.batches))
    return sizes


def _says(*streams: str, expected: int | None = 0) -> Unit:
    return unit(*(say(stream, expected) for stream in streams))


async def test_batches_on_different_streams_go_together() -> None:
    assert await _calls(decided(_says("a")), decided(_says("b")), decided(_says("c"))) == [3]


async def test_a_batch_that_expects_waits_for_one_that_writes_there() -> None:
    assert await _calls(decided(_says("a")), decided(_says("a"))) == [1, 1]


async def test_a_batch_that_guards_waits_for_one_that_writes_there() -> None:
    guards = decided(unit(say("b"), unmoved=["a"]))
    assert await _calls(decided(_says("a")), guards) == [1, 1]


async def test_a_batch_that_writes_need_not_wait_for_one_that_guards() -> None:
    guards = decided(unit(say("b"), unmoved=["a"]))
    assert await _calls(guards, decided(_says("a"))) == [2]


async def test_batches_that_expect_nothing_go_together_on_one_stream() -> None:
    assert await _calls(*[decided(_says("facts", expected=None))] * 3) == [3]


async def test_a_batch_waits_for_one_that_closes_its_stream() -> None:
    closes = decided(unit(say("a", closes=True)))
    assert await _calls(closes, decided(_says("a", expected=None))) == [1, 1]


async def test_two_decisions_of_one_service_do_not_go_together() -> None:
    replicas = [decided(_says(name), service="quota", revision=0) for name in "ab"]
    assert await _calls(*replicas) == [1, 1]


async def test_what_was_asked_first_is_decided_first() -> None:
    assert await _calls(decided(_says("a")), decided(_says("a")), decided(_says("b"))) == [1, 2]


async def test_a_call_is_bounded() -> None:
    half = decided(*(_says(str(n), expected=None) for n in range(CALL_EVENTS_MAX // 2)))
    assert await _calls(half, half, half) == [2, 1]


async def test_a_batch_beyond_the_bound_goes_alone() -> None:
    large = decided(*(_says(str(n), expected=None) for n in range(CALL_EVENTS_MAX + 1)))
    assert await _calls(decided(_says("a")), large, decided(_says("b"))) == [1, 1, 1]


async def test_who_no_longer_waits_is_left_out() -> None:
    gone, stays = _waiting(decided(_says("a"))), _waiting(decided(_says("a")))
    gone.answer.cancel()
    gathered = Gathered()
    gathered.take_from(deque([gone, stays]))
    assert gathered.batches == [stays]


async def test_units_and_their_parts_are_counted_through_all_batches() -> None:
    first = decided(_says("a", "b"), unit(), service="quota", revision=4)
    second = decided(unit(say("c"), unmoved=["d"]))
    arguments = columns([_waiting(first), _waiting(second)])
    assert [list(column) for column in arguments[:10]] == [
        ["quota", "api"],
        [4, None],
        [1, 1],
        [0, 0],
        [1, 1, 2],
        [3],
        ["d"],
        [0],
        [1, 1, 3],
        ["a", "b", "c"],
    ]


async def test_a_call_without_events_has_empty_columns() -> None:
    arguments = columns([_waiting(decided(service="quota", revision=0))])
    assert [list(column) for column in arguments[4:]] == [[]] * 19
