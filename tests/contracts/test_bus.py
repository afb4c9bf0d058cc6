"""What a bus must give, whoever implements it: memory and a real server are asked the same."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, Protocol

import pytest

from ebbtide.chassis.bus import Bus, Entry, Message, Outgoing
from ebbtide.chassis.bus_nats import NatsBus
from ebbtide.contracts.errors import Conflict, NotFound, Unavailable
from ebbtide.contracts.subjects import HEADER_EPOCH, HEADER_EVENT, events, events_stream
from ebbtide.testing.bus import MemoryServer
from ebbtide.testing.servers import NatsServer
from ebbtide.testing.waiting import wait_until

Connect = Callable[[], Awaitable[Bus]]


class Outage(Protocol):
    """A server that can be taken away and given back."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


class Breakable(NamedTuple):
    connect: Connect
    server: Outage


class _MemoryOutage:
    def __init__(self, server: MemoryServer) -> None:
        self._server = server

    def kill(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.start()


async def _closing(opened: list[Bus]) -> None:
    for bus in opened:
        await bus.close()


@pytest.fixture(params=["memory", "nats"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Open connections to one server that several tests share."""
    opened: list[Bus] = []
    memory = MemoryServer()
    url = request.getfixturevalue("nats_url") if request.param == "nats" else ""

    async def open_one() -> Bus:
        bus: Bus = await NatsBus.connect(url, "test") if url else memory.connect()
        opened.append(bus)
        return bus

    yield open_one
    await _closing(opened)


@pytest.fixture
async def bus(connect: Connect) -> Bus:
    return await connect()


@pytest.fixture(params=["memory", "nats"])
async def breakable(request: pytest.FixtureRequest) -> AsyncIterator[Breakable]:
    """Open connections to a server that is this test's own to break."""
    opened: list[Bus] = []
    memory = MemoryServer()
    real: NatsServer | None = None
    if request.param == "nats":
        real = request.getfixturevalue("private_nats")

    async def open_one() -> Bus:
        bus: Bus = await NatsBus.connect(real.url, "test") if real else memory.connect()
        opened.append(bus)
        return bus

    yield Breakable(open_one, real or _MemoryOutage(memory))
    await _closing(opened)


class Heard(list[Any]):
    """A handler that keeps what it is given."""

    async def __call__(self, item: Any) -> None:
        self.append(item)

    def data(self) -> list[bytes]:
        return [message.data for message in self]

    def values(self) -> list[bytes]:
        return [entry.value for entry in self]

    def sequences(self) -> list[int]:
        return [message.sequence for message in self]


def run_of(cell: str, first: int, count: int, epoch: int = 1) -> list[Outgoing]:
    """Events of one history; another epoch is another history."""
    return [
        Outgoing(
            f"evt.{cell}.w.job.queued",
            b"event %d" % n,
            {HEADER_EPOCH: str(epoch), HEADER_EVENT: f"event-{epoch}-{n}"},
            n,
        )
        for n in range(first, first + count)
    ]


async def answering(bus: Bus, subject: str) -> None:
    async def answer(message: Message) -> None:
        await bus.publish(message.reply, b"re: " + message.data)

    await bus.subscribe(subject, answer)


# Messages


async def test_a_message_reaches_everybody_who_listens(connect: Connect, cell: str) -> None:
    one, two, speaker = await connect(), await connect(), await connect()
    first, second = Heard(), Heard()
    await one.subscribe(f"agent.{cell}.*.report", first)
    await two.subscribe(f"agent.{cell}.>", second)
    await _settled(one, two)
    await speaker.publish(f"agent.{cell}.n1.report", b"up")
    await wait_until(lambda: first.data() == second.data() == [b"up"], "both hear it")


async def test_one_member_of_a_queue_gets_each_message(connect: Connect, cell: str) -> None:
    one, two, speaker = await connect(), await connect(), await connect()
    first, second = Heard(), Heard()
    await one.subscribe(f"work.{cell}", first, queue="q")
    await two.subscribe(f"work.{cell}", second, queue="q")
    await _settled(one, two)
    for number in range(20):
        await speaker.publish(f"work.{cell}", b"%d" % number)
    await wait_until(lambda: len(first) + len(second) >= 20, "all are heard")
    assert sorted(int(data) for data in first.data() + second.data()) == list(range(20))


async def test_a_closed_subscription_hears_nothing_more(bus: Bus, cell: str) -> None:
    heard, after = Heard(), Heard()
    subscription = await bus.subscribe(f"x.{cell}", heard)
    await bus.subscribe(f"x.{cell}", after)
    await subscription.close()
    await bus.publish(f"x.{cell}", b"late")
    await wait_until(lambda: len(after) == 1, "the other one hears it")
    assert heard == []


async def test_a_handler_is_awaited_for_one_message_at_a_time_in_order(bus: Bus, cell: str) -> None:
    running, order = [], []

    async def handler(message: Message) -> None:
        running.append(message)
        await asyncio.sleep(0)
        assert len(running) == 1
        order.append(int(message.data))
        running.pop()

    await bus.subscribe(f"x.{cell}", handler)
    for number in range(50):
        await bus.publish(f"x.{cell}", b"%d" % number)
    await wait_until(lambda: len(order) == 50, "all are handled")
    assert order == list(range(50))


async def test_a_handler_that_raises_still_gets_the_next_message(bus: Bus, cell: str) -> None:
    heard: list[bytes] = []

    async def handler(message: Message) -> None:
        heard.append(message.data)
        raise ValueError("bad message")

    await bus.subscribe(f"x.{cell}", handler)
    await bus.publish(f"x.{cell}", b"1")
    await bus.publish(f"x.{cell}", b"2")
    await wait_until(lambda: heard == [b"1", b"2"], "both are handed over")


async def test_a_handler_may_close_its_own_subscription(bus: Bus, cell: str) -> None:
    done: list[str] = []

    async def handler(_: Message) -> None:
        await subscription.close()
        done.append("closed")

    subscription = await bus.subscribe(f"x.{cell}", handler)
    await bus.publish(f"x.{cell}", b"1")
    await wait_until(lambda: done == ["closed"], "the handler ran to its end")


async def test_a_request_is_answered(connect: Connect, cell: str) -> None:
    asker, answerer = await connect(), await connect()
    await answering(answerer, f"q.{cell}")
    await _settled(answerer)
    assert await asker.request(f"q.{cell}", b"hello", 5) == b"re: hello"


async def test_many_requests_at_once_get_their_own_answers(bus: Bus, cell: str) -> None:
    await answering(bus, f"q.{cell}")
    answers = await asyncio.gather(*(bus.request(f"q.{cell}", b"%d" % n, 5) for n in range(50)))
    assert answers == [b"re: %d" % n for n in range(50)]


async def test_a_request_that_nobody_listens_to_is_unavailable_at_once(bus: Bus, cell: str) -> None:
    with pytest.raises(Unavailable, match="nobody listens"):
        await bus.request(f"q.{cell}", b"", 30)


async def test_a_request_that_nobody_answers_is_unavailable_in_time(bus: Bus, cell: str) -> None:
    await bus.subscribe(f"q.{cell}", Heard())
    with pytest.raises(Unavailable, match="no answer"):
        await bus.request(f"q.{cell}", b"", 0.05)


async def test_closing_a_connection_lets_a_running_handler_end(connect: Connect, cell: str) -> None:
    asker, answerer = await connect(), await connect()
    begun, go = asyncio.Event(), asyncio.Event()

    async def answer(message: Message) -> None:
        begun.set()
        await go.wait()
        await answerer.publish(message.reply, b"answered")

    await answerer.subscribe(f"q.{cell}", answer)
    await _settled(answerer)
    request = asyncio.create_task(asker.request(f"q.{cell}", b"", 5))
    await begun.wait()
    closing = asyncio.create_task(answerer.close())
    await asyncio.sleep(0)
    go.set()
    assert await request == b"answered"
    await closing


# Buckets


@pytest.fixture
async def bucket(bus: Bus, cell: str) -> str:
    await bus.ensure_bucket(f"lease_{cell}")
    return f"lease_{cell}"


async def test_a_key_that_was_never_written_reads_as_none(bus: Bus, bucket: str) -> None:
    assert await bus.kv_get(bucket, "n1") is None


async def test_a_written_key_is_read_with_its_revision(bus: Bus, bucket: str) -> None:
    revision = await bus.kv_put(bucket, "n1", b"a", 0)
    assert await bus.kv_get(bucket, "n1") == Entry("n1", b"a", revision)


async def test_a_write_at_the_last_revision_stands(bus: Bus, bucket: str) -> None:
    first = await bus.kv_put(bucket, "n1", b"a", 0)
    second = await bus.kv_put(bucket, "n1", b"b", first)
    assert await bus.kv_get(bucket, "n1") == Entry("n1", b"b", second)


@pytest.mark.parametrize("offset", [-1, 1])
async def test_a_write_at_another_revision_is_refused(bus: Bus, bucket: str, offset: int) -> None:
    revision = await bus.kv_put(bucket, "n1", b"a", 0)
    with pytest.raises(Conflict):
        await bus.kv_put(bucket, "n1", b"b", revision + offset)


async def test_a_refused_write_changes_nothing(bus: Bus, bucket: str) -> None:
    revision = await bus.kv_put(bucket, "n1", b"a", 0)
    with pytest.raises(Conflict):
        await bus.kv_put(bucket, "n1", b"b", 0)
    assert await bus.kv_get(bucket, "n1") == Entry("n1", b"a", revision)


async def test_of_two_writers_at_one_revision_one_stands(
    connect: Connect, bus: Bus, bucket: str
) -> None:
    other = await connect()
    revision = await bus.kv_put(bucket, "n1", b"a", 0)
    results = await asyncio.gather(
        bus.kv_put(bucket, "n1", b"b", revision),
        other.kv_put(bucket, "n1", b"c", revision),
        return_exceptions=True,
    )
    assert sorted(isinstance(result, Conflict) for result in results) == [False, True]


async def test_making_a_bucket_again_keeps_what_it_holds(bus: Bus, bucket: str) -> None:
    await bus.kv_put(bucket, "n1", b"a", 0)
    await bus.ensure_bucket(bucket)
    kept = await bus.kv_get(bucket, "n1")
    assert kept is not None
    assert kept.value == b"a"


async def test_a_bucket_that_is_not_there_is_unavailable(bus: Bus, cell: str) -> None:
    with pytest.raises(Unavailable):
        await bus.kv_get(f"none_{cell}", "n1")
    with pytest.raises(Unavailable):
        await bus.kv_put(f"none_{cell}", "n1", b"", 0)


@pytest.mark.parametrize("key", ["n1", ">"])
async def test_a_watcher_gets_the_present_value_and_then_each_change(
    bus: Bus, bucket: str, key: str
) -> None:
    seen = Heard()
    revision = await bus.kv_put(bucket, "n1", b"0", 0)
    await bus.kv_watch(bucket, key, seen)
    await wait_until(lambda: seen.values() == [b"0"], "the present value")
    for number in range(1, 10):
        revision = await bus.kv_put(bucket, "n1", b"%d" % number, revision)
    await wait_until(lambda: len(seen) >= 10, "every change")
    assert seen.values() == [b"%d" % number for number in range(10)]
    assert seen[-1] == Entry("n1", b"9", revision)


async def test_a_watcher_of_one_key_hears_of_no_other(bus: Bus, bucket: str) -> None:
    seen = Heard()
    await bus.kv_watch(bucket, "n1", seen)
    await bus.kv_put(bucket, "n2", b"other", 0)
    await bus.kv_put(bucket, "n1", b"mine", 0)
    await wait_until(lambda: len(seen) > 0, "the change")
    assert seen.values() == [b"mine"]


async def test_a_watcher_of_all_keys_hears_of_each(bus: Bus, bucket: str) -> None:
    seen = Heard()
    await bus.kv_put(bucket, "n1", b"1", 0)
    await bus.kv_watch(bucket, ">", seen)
    await bus.kv_put(bucket, "n2", b"2", 0)
    await wait_until(lambda: len(seen) == 2, "both keys")
    assert [(entry.key, entry.value) for entry in seen] == [("n1", b"1"), ("n2", b"2")]


@pytest.mark.parametrize("key", ["n1", ">"])
async def test_a_watcher_does_not_hear_of_a_refused_write(bus: Bus, bucket: str, key: str) -> None:
    seen = Heard()
    revision = await bus.kv_put(bucket, "n1", b"a", 0)
    await bus.kv_watch(bucket, key, seen)
    with pytest.raises(Conflict):
        await bus.kv_put(bucket, "n1", b"refused", revision + 7)
    await bus.kv_put(bucket, "n1", b"b", revision)
    await wait_until(lambda: len(seen) >= 2, "the write that stood")
    assert seen.values() == [b"a", b"b"]


@pytest.mark.parametrize("key", ["n1", ">"])
async def test_a_watch_may_begin_before_its_bucket_is_there(bus: Bus, cell: str, key: str) -> None:
    seen = Heard()
    await bus.kv_watch(f"late_{cell}", key, seen)
    await bus.ensure_bucket(f"late_{cell}")
    await bus.kv_put(f"late_{cell}", "n1", b"a", 0)
    await wait_until(lambda: seen.values() == [b"a"], "the first value")


@pytest.mark.parametrize("key", ["n1", ">"])
async def test_a_closed_watch_hears_nothing_more(bus: Bus, bucket: str, key: str) -> None:
    seen, after = Heard(), Heard()
    watch = await bus.kv_watch(bucket, key, seen)
    await bus.kv_watch(bucket, key, after)
    await watch.close()
    await bus.kv_put(bucket, "n1", b"a", 0)
    await wait_until(lambda: len(after) == 1, "the other watch hears it")
    assert seen == []


# The events stream


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


# When the server is away


async def _away(bus: Bus) -> None:
    await wait_until(lambda: not bus.connected, "the connection is lost")


async def _back(bus: Bus) -> None:
    await wait_until(lambda: bus.connected, "the connection is back")


async def _settled(*listening: Bus) -> None:
    """Return once what these connections subscribed to is known to the server."""
    for bus in listening:
        with pytest.raises(Unavailable):
            await bus.request("nobody.listens.here", b"", 5)


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
