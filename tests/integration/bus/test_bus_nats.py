"""What only a real server can show: deafness, lost consumers, lost buckets, limits, secrets."""

import asyncio
import signal
from collections.abc import AsyncIterator

import msgspec
import pytest

from ebbtide.chassis.bus import Entry, Message, Outgoing
from ebbtide.chassis.bus_nats import NatsBus
from ebbtide.chassis.bus_nats_link import MAX_UNSENT, Door
from ebbtide.contracts.errors import Conflict, Malformed, Unavailable
from ebbtide.contracts.subjects import events, events_stream
from ebbtide.testing.servers import NatsServer
from ebbtide.testing.waiting import wait_until


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    bus = await NatsBus.connect(nats_url, "test")
    yield bus
    await bus.close()


@pytest.fixture
async def deaf(private_nats: NatsServer) -> AsyncIterator[NatsBus]:
    """Give a connection to a server that has stopped listening, though its socket is open."""
    bus = await NatsBus.connect(private_nats.url, "test")
    await bus.ensure_bucket("b")
    private_nats.signal(signal.SIGSTOP)
    yield bus
    private_nats.signal(signal.SIGCONT)
    await bus.close()


class Seen(list[Entry]):
    async def __call__(self, entry: Entry) -> None:
        self.append(entry)

    def values(self) -> list[bytes]:
        return [entry.value for entry in self]


async def test_a_request_to_a_deaf_server_is_unavailable_in_time(deaf: NatsBus) -> None:
    with pytest.raises(Unavailable):
        await deaf.request("x", b"", 0.2)


async def test_what_waits_for_a_deaf_server_is_bounded(deaf: NatsBus) -> None:
    sent = 0
    try:
        while sent < 10 * MAX_UNSENT:
            await deaf.publish("x", bytes(65_536))
            sent += 65_536
    except Unavailable:
        pass
    assert sent < 3 * MAX_UNSENT


async def test_a_connection_to_a_deaf_server_closes_within_a_bound(deaf: NatsBus) -> None:
    async with asyncio.timeout(10):
        await deaf.close()


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="NATS"):
        await NatsBus.connect("nats://127.0.0.1:9", "test", wait_s=0.2)


async def test_a_bus_may_be_made_before_its_server(private_nats: NatsServer) -> None:
    private_nats.kill()
    bus = await NatsBus.connect(private_nats.url, "test", wait_s=0)
    assert not bus.connected
    private_nats.start()
    await wait_until(lambda: bus.connected, "the connection is made")
    await bus.close()


async def test_closing_leaves_no_task_behind(nats_url: str, cell: str) -> None:
    bus = await NatsBus.connect(nats_url, "test")
    await bus.ensure_bucket(f"b_{cell}")
    await bus.subscribe(f"x.{cell}", _ignore)
    await bus.follow(events_stream(cell), 0, _ignore)
    for key in ("n1", ">"):
        await bus.kv_watch(f"b_{cell}", key, Seen())
    await bus.close()
    ours = asyncio.current_task()
    await wait_until(lambda: asyncio.all_tasks() == {ours}, "only this test's task is left")


async def _ignore(_: Message) -> None:
    return


async def test_a_message_that_is_too_large_is_malformed(bus: NatsBus) -> None:
    with pytest.raises(Malformed):
        await bus.publish("x", bytes(9 * 2**20))


def test_a_door_never_shows_its_secrets() -> None:
    door = Door(url="nats://u:hidden1@h", name="n", password="hidden2", token="hidden3")
    assert "hidden" not in repr(door)


async def test_a_refusal_never_shows_the_password(private_nats: NatsServer) -> None:
    url = private_nats.url.replace(private_nats.nats.password, "wrongsecret")
    with pytest.raises(Unavailable) as refusal:
        await NatsBus.connect(url, "test", wait_s=0.3)
    assert "wrongsecret" not in str(refusal.value)


async def test_a_narrow_connection_reads_what_a_wide_one_wrote(
    bus: NatsBus, nats_url: str, cell: str
) -> None:
    await bus.ensure_bucket(f"b_{cell}")
    narrow = await NatsBus.connect(nats_url, "narrow", narrow=True)
    assert await narrow.kv_get(f"b_{cell}", "n1") is None
    revision = await bus.kv_put(f"b_{cell}", "n1", b"a", 0)
    assert await narrow.kv_get(f"b_{cell}", "n1") == Entry("n1", b"a", revision)
    await narrow.close()


async def test_a_lost_bucket_is_made_anew_by_who_made_it(
    nats_url: str, bus: NatsBus, cell: str
) -> None:
    bucket, seen = f"b_{cell}", Seen()
    await bus.ensure_bucket(bucket)
    held = await bus.kv_put(bucket, "n1", b"old", 0)
    await bus.kv_watch(bucket, ">", seen)
    other = await NatsBus.connect(nats_url, "other")
    await bus.delete_stream(f"KV_{bucket}")
    with pytest.raises(Unavailable):
        await other.kv_put(bucket, "n1", b"new", held)
    with pytest.raises(Unavailable):
        await bus.kv_put(bucket, "n1", b"new", held)
    with pytest.raises(Conflict):
        await other.kv_put(bucket, "n1", b"new", held)
    await other.kv_put(bucket, "n1", b"new", 0)
    await wait_until(lambda: b"new" in seen.values(), "the watcher sees it", timeout_s=15)
    await bus.delete_stream(f"KV_{bucket}")
    assert await bus.kv_get(bucket, "n1") is None
    await other.close()


async def test_whoever_follows_a_lost_bucket_that_it_made_makes_it_anew(
    nats_url: str, bus: NatsBus, cell: str
) -> None:
    bucket, seen = f"b_{cell}", Seen()
    await bus.ensure_bucket(bucket)
    await bus.kv_watch(bucket, ">", seen)
    other = await NatsBus.connect(nats_url, "other")
    await bus.delete_stream(f"KV_{bucket}")

    async def stands() -> bool:
        try:
            return await other.kv_put(bucket, "n1", b"new", 0) > 0
        except Unavailable:
            return False

    await wait_until(stands, "a write stands", timeout_s=15)
    await wait_until(lambda: seen.values() == [b"new"], "the watcher sees it", timeout_s=15)
    await other.close()


@pytest.mark.parametrize("key", ["n1", ">"])
async def test_a_watcher_gets_the_value_of_a_bucket_that_was_lost_and_made_anew(
    bus: NatsBus, cell: str, key: str
) -> None:
    bucket, seen = f"b_{cell}", Seen()
    await bus.ensure_bucket(bucket)
    first = await bus.kv_put(bucket, "n1", b"old", 0)
    await bus.kv_put(bucket, "n1", b"older", first)
    await bus.kv_watch(bucket, key, seen)
    await wait_until(lambda: seen.values() == [b"older"], "the present value")
    await bus.delete_stream(f"KV_{bucket}")
    await bus.ensure_bucket(bucket)
    await bus.kv_put(bucket, "n1", b"new", 0)
    await wait_until(lambda: seen.values() == [b"older", b"new"], "the new value", timeout_s=20)


async def test_a_follower_whose_consumer_was_deleted_misses_nothing(
    bus: NatsBus, cell: str
) -> None:
    stream, seen = events_stream(cell), []

    async def hear(message: Message) -> None:
        seen.append(message.sequence)

    await bus.ensure_stream(stream, [events(cell)], 1)
    await bus.follow(stream, 0, hear)
    await bus.publish_run(_run(cell, 1, 5))
    await wait_until(lambda: len(seen) == 5, "the first messages")
    names = msgspec.json.decode(await bus.request(f"$JS.API.CONSUMER.NAMES.{stream}", b"", 5))
    for name in names["consumers"]:
        await bus.request(f"$JS.API.CONSUMER.DELETE.{stream}.{name}", b"", 5)
    await bus.publish_run(_run(cell, 6, 5))
    await wait_until(lambda: len(seen) >= 10, "all messages", timeout_s=20)
    assert seen == list(range(1, 11))


async def test_a_slow_follower_is_not_given_up_while_it_works(bus: NatsBus, cell: str) -> None:
    stream, seen, go = events_stream(cell), [], asyncio.Event()

    async def hear(message: Message) -> None:
        await go.wait()
        seen.append(message.sequence)

    await bus.ensure_stream(stream, [events(cell)], 1)
    await bus.follow(stream, 0, hear)
    for first in range(1, 20_001, 1000):
        await bus.publish_run(_run(cell, first, 1000))
    go.set()
    await wait_until(lambda: len(seen) >= 20_000, "all messages", timeout_s=30)
    assert seen == list(range(1, 20_001))


def _run(cell: str, first: int, count: int) -> list[Outgoing]:
    return [
        Outgoing(f"evt.{cell}.w.job.queued", b"." * 400, {"Nats-Msg-Id": f"{cell}-{n}"}, n)
        for n in range(first, first + count)
    ]
