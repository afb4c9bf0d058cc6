"""What a bus must give, whoever implements it: what an outage of its server takes, and what not."""

import asyncio

import pytest
from tests.contracts.bus.rig import Breakable, Heard, run_of

from ebbtide.chassis.bus import Bus, Entry, Message
from ebbtide.contracts.errors import Conflict, Unavailable
from ebbtide.contracts.subjects import events
from ebbtide.testing.waiting import wait_until


async def _away(bus: Bus) -> None:
    await wait_until(lambda: not bus.connected, "the connection is lost")


async def _back(bus: Bus) -> None:
    await wait_until(lambda: bus.connected, "the connection is back")


async def test_calls_are_unavailable_at_once_while_the_server_is_away(
    breakable: Breakable,
) -> None:
    bus = await breakable.connect()
    await bus.ensure_bucket("b")
    breakable.server.kill()
    await _away(bus)
    for call in (
        bus.publish("x", b""),
        bus.request("x", b"", 30),
        bus.kv_get("b", "n1"),
        bus.kv_put("b", "n1", b"", 0),
        bus.last("EVT_main"),
        bus.publish_run(run_of("main", 1, 2)),
    ):
        with pytest.raises(Unavailable):
            await call


async def test_a_waiting_request_is_unavailable_when_the_connection_is_lost(
    breakable: Breakable,
) -> None:
    bus, heard = await breakable.connect(), Heard()
    await bus.subscribe("q", heard)
    request = asyncio.create_task(bus.request("q", b"", 60))
    await wait_until(lambda: len(heard) == 1, "the request has arrived")
    breakable.server.kill()
    with pytest.raises(Unavailable):
        await request


async def test_a_subscription_hears_again_after_an_outage(breakable: Breakable) -> None:
    bus, heard = await breakable.connect(), Heard()
    await bus.subscribe("x", heard)
    breakable.server.kill()
    await _away(bus)
    breakable.server.start()
    await _back(bus)
    await wait_until(lambda: _told(bus, heard), "a message after the outage")


async def _told(bus: Bus, heard: Heard) -> bool:
    await bus.publish("x", b"again")
    return b"again" in heard.data()


async def test_a_subscription_may_be_made_during_an_outage(breakable: Breakable) -> None:
    bus, heard = await breakable.connect(), Heard()
    breakable.server.kill()
    await _away(bus)
    await bus.subscribe("x", heard)
    breakable.server.start()
    await _back(bus)
    await wait_until(lambda: _told(bus, heard), "a message after the outage")


async def test_a_message_sent_during_an_outage_is_not_sent_later(breakable: Breakable) -> None:
    bus, heard = await breakable.connect(), Heard()
    await bus.subscribe("x", heard)
    breakable.server.kill()
    await _away(bus)
    with pytest.raises(Unavailable):
        await bus.publish("x", b"lost")
    breakable.server.start()
    await _back(bus)
    await wait_until(lambda: _told(bus, heard), "a message after the outage")
    assert b"lost" not in heard.data()


async def test_a_handler_is_not_cancelled_by_an_outage(breakable: Breakable) -> None:
    bus, go, done = await breakable.connect(), asyncio.Event(), []

    async def handler(_: Message) -> None:
        done.append("begun")
        await go.wait()
        done.append("ended")

    await bus.subscribe("x", handler)
    await bus.publish("x", b"")
    await wait_until(lambda: done == ["begun"], "the handler runs")
    breakable.server.kill()
    await _away(bus)
    go.set()
    await wait_until(lambda: done == ["begun", "ended"], "the handler ran to its end")


async def test_who_asked_is_told_of_every_return(breakable: Breakable) -> None:
    bus, returns = await breakable.connect(), []

    async def returned() -> None:
        returns.append(bus.connected)

    bus.on_return(returned)
    for _ in range(2):
        told = len(returns)
        breakable.server.kill()
        await _away(bus)
        breakable.server.start()
        await wait_until(lambda: len(returns) > told, "the return is told")  # noqa: B023 - same turn
    assert returns == [True, True]


async def test_what_buckets_hold_outlives_an_outage(breakable: Breakable) -> None:
    bus = await breakable.connect()
    await bus.ensure_bucket("b")
    revision = await bus.kv_put("b", "n1", b"a", 0)
    breakable.server.kill()
    await _away(bus)
    breakable.server.start()
    await _back(bus)
    await wait_until(lambda: _reads(bus, Entry("n1", b"a", revision)), "the value is read")


async def _reads(bus: Bus, entry: Entry) -> bool:
    try:
        return await bus.kv_get("b", "n1") == entry
    except Unavailable:
        return False


@pytest.mark.parametrize("key", ["n1", ">"])
async def test_a_watcher_gets_the_value_that_was_written_while_it_was_away(
    breakable: Breakable, key: str
) -> None:
    bus, seen = await breakable.connect(), Heard()
    await bus.ensure_bucket("b")
    revision = await bus.kv_put("b", "n1", b"before", 0)
    await bus.kv_watch("b", key, seen)
    await wait_until(lambda: len(seen) == 1, "the present value")
    breakable.server.kill()
    await _away(bus)
    breakable.server.start()
    other = await breakable.connect()
    await wait_until(lambda: _writes(other, b"after", revision), "the write stands")
    await wait_until(lambda: b"after" in seen.values(), "the new value", timeout_s=20)


async def _writes(bus: Bus, value: bytes, revision: int) -> bool:
    try:
        await bus.kv_put("b", "n1", value, revision)
    except Unavailable:
        return False
    except Conflict:  # an answer was lost: the write stood
        return True
    return True


async def test_a_follower_misses_nothing_of_an_outage(breakable: Breakable) -> None:
    bus, seen = await breakable.connect(), Heard()
    await bus.ensure_stream("EVT_main", [events("main")], 1)
    await bus.follow("EVT_main", 0, seen)
    await bus.publish_run(run_of("main", 1, 10))
    breakable.server.kill()
    await _away(bus)
    breakable.server.start()
    other = await breakable.connect()
    await wait_until(lambda: _holds(other, 10), "the stream is back")
    await other.publish_run(run_of("main", 11, 10))
    await wait_until(lambda: len(seen) >= 20, "all messages", timeout_s=20)
    assert seen.sequences() == list(range(1, 21))


async def _holds(bus: Bus, sequence: int) -> bool:
    try:
        last = await bus.last("EVT_main")
    except Unavailable:
        return False
    return last is not None and last.sequence == sequence
