"""What the bus costs on a real server: requests, guarded writes, runs, following. Prints JSON.

``python tests/bench/bench_bus.py [address]``: without an address a server of its own is started.
"""

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable

from ebbtide.chassis.bus import Bus, Entry, Message, Outgoing
from ebbtide.chassis.bus_nats import NatsBus
from ebbtide.contracts.subjects import HEADER_EPOCH, HEADER_EVENT
from ebbtide.testing.servers import NatsServer, server_folder

ROUNDS = 2_000
RUN, RUNS = 100, 300
BODY = b"." * 500


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def _timed(call: Callable[[int], Awaitable[object]], rounds: int) -> dict[str, float]:
    """Give the latency of ``call`` and the processor time that it took here."""
    taken: list[float] = []
    cpu = _cpu_s()
    for number in range(rounds):
        begun = time.perf_counter()
        await call(number)
        taken.append((time.perf_counter() - begun) * 1e3)
    cpu = (_cpu_s() - cpu) / rounds * 1e6
    taken.sort()
    return {
        "p50_ms": round(taken[rounds // 2], 3),
        "p99_ms": round(taken[rounds * 99 // 100], 3),
        "cpu_us": round(cpu, 1),
    }


def _run(first: int) -> list[Outgoing]:
    return [
        Outgoing("evt.bench.w.job.queued", BODY, {HEADER_EPOCH: "1", HEADER_EVENT: f"e-{n}"}, n)
        for n in range(first, first + RUN)
    ]


async def _requests(bus: Bus) -> dict[str, float]:
    async def answer(message: Message) -> None:
        await bus.publish(message.reply, message.data)

    await bus.subscribe("bench.q", answer)
    return await _timed(lambda _: bus.request("bench.q", b"x" * 200, 5), ROUNDS)


async def _writes(bus: Bus) -> dict[str, float]:
    kept = await bus.kv_get("bench", "n1")
    revision = kept.revision if kept else 0

    async def put(_: int) -> None:
        nonlocal revision
        revision = await bus.kv_put("bench", "n1", BODY, revision)

    return await _timed(put, ROUNDS)


async def _seen(bus: Bus, key: str) -> dict[str, float]:
    """Time from the write of a key to its watcher, the write's own answer beside it."""
    came: asyncio.Queue[int] = asyncio.Queue()
    kept = await bus.kv_get("bench", "n2")
    revision = kept.revision if kept else 0

    async def watcher(entry: Entry) -> None:
        if entry.key == "n2":
            came.put_nowait(entry.revision)

    watch = await bus.kv_watch("bench", key, watcher)

    async def put(_: int) -> None:
        nonlocal revision
        writing = asyncio.create_task(bus.kv_put("bench", "n2", BODY, revision))
        while await came.get() <= revision:
            continue
        revision = await writing

    result = await _timed(put, ROUNDS)
    await watch.close()
    return result


async def _runs(bus: Bus) -> dict[str, float]:
    async def publish(number: int) -> None:
        await bus.publish_run(_run(1 + number * RUN))

    begun = time.perf_counter()
    result = await _timed(publish, RUNS)
    return {**result, "messages_per_s": round(RUN * RUNS / (time.perf_counter() - begun))}


async def _following(bus: Bus) -> dict[str, float]:
    total, seen, done = RUN * RUNS, 0, asyncio.Event()

    async def handler(message: Message) -> None:
        nonlocal seen
        seen += 1
        if message.sequence == total:
            done.set()

    begun, cpu = time.perf_counter(), _cpu_s()
    following = await bus.follow("EVT_bench", 0, handler)
    await done.wait()
    elapsed, cpu = time.perf_counter() - begun, _cpu_s() - cpu
    await following.close()
    return {"messages_per_s": round(seen / elapsed), "cpu_us": round(cpu / seen * 1e6, 1)}


async def _measure(url: str) -> dict[str, object]:
    bus = await NatsBus.connect(url, "bench")
    await bus.ensure_bucket("bench")
    await bus.delete_stream("EVT_bench")
    await bus.ensure_stream("EVT_bench", ["evt.bench.>"], 1)
    result: dict[str, object] = {
        "request": await _requests(bus),
        "kv_put": await _writes(bus),
        "kv_put_to_watcher_of_one_key": await _seen(bus, "n2"),
        "kv_put_to_watcher_of_all_keys": await _seen(bus, ">"),
        f"publish_run_{RUN}": await _runs(bus),
        "follow": await _following(bus),
        "load": os.getloadavg()[0],
    }
    await bus.close()
    return result


def _main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(asyncio.run(_measure(sys.argv[1])), indent=2))
        return
    with server_folder() as folder:
        server = NatsServer(folder)
        server.start()
        try:
            print(json.dumps(asyncio.run(_measure(server.url)), indent=2))
        finally:
            server.kill()


if __name__ == "__main__":
    _main()
