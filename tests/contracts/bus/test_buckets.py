"""What a bus must give, whoever implements it: guarded keys, and watches on them."""

import asyncio

import pytest
from tests.contracts.bus.rig import Connect, Heard

from ebbtide.chassis.bus import Bus, Entry
from ebbtide.contracts.errors import Conflict, Unavailable
from ebbtide.testing.waiting import wait_until


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
