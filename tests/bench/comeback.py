"""How fast the log is read again: by a service that was killed, and page by page."""

import asyncio
import concurrent.futures
import json
import os
import signal
import time
from pathlib import Path

from tests.bench.ground import TICKS, Results, Running, job, summary, up, wait_for

from ebbtide.allinone.home import Home
from ebbtide.allinone.plan import Plan
from ebbtide.contracts.envelope import Append, Unit
from ebbtide.contracts.events import JobQueued, JobSubmitted
from ebbtide.contracts.ids import JobId, Workspace, job_id
from ebbtide.contracts.job_spec import parse_job_spec
from ebbtide.eventlog.log import Decided
from ebbtide.eventlog.postgres import PostgresLog
from ebbtide.model.world import World

ROUNDS = 5
PAGE = 2_000
LANES = 16
SMALL = ("--nodes", "1", "--capacity", "cpu=1,memory=1Gi")


def comeback(results: Results, seed: int, live: int = 10_000) -> None:
    """Kill the services under ``live`` waiting jobs: from the new process to its first decision.

    A job is put into the log while they are frozen, so that there is something to decide.
    """
    with up(*SMALL) as running:
        _wait_in_line(running, live)
        url = _database(running)
        took = [asyncio.run(_kill_and_wait(running, url, number)) for number in range(ROUNDS)]
        results.add(f"comeback.{live}", unit="s", seed=seed, spawn_to_first_decision=summary(took))


def replay(results: Results, seed: int, jobs: int = 20_000) -> None:
    """Read the whole log in pages, decode and fold every event into the world."""
    with up(*SMALL) as running:
        _wait_in_line(running, jobs)
        rates = [asyncio.run(_replay(_database(running))) for _ in range(ROUNDS)]
        results.add("replay", unit="events/s", seed=seed, events_per_s=summary(rates))


def _wait_in_line(running: Running, count: int) -> None:
    """Have so many jobs wait behind the one that has the whole node."""
    blocked = job("waits", ["sleep", "86400"])

    def lane(_: int) -> None:
        client = running.another_client()
        for _ in range(count // LANES):
            client.submit(blocked)

    with concurrent.futures.ThreadPoolExecutor(LANES) as pool:
        list(pool.map(lane, range(LANES)))
    wait_for(lambda: running.client.status().jobs.get("submitted", 0) == 0, 60)


def _database(running: Running) -> str:
    home = Home(running.home)
    kept = home.load()
    if kept is None:
        raise RuntimeError("the platform's home is empty")
    return Plan(home, kept, {}).database_url


async def _kill_and_wait(running: Running, url: str, number: int) -> float:
    log = await PostgresLog.connect(url)
    try:
        pid = _pid(running)
        os.kill(pid, signal.SIGSTOP)
        name = job_id(running.client.cell, time.time_ns() // 1_000_000, os.urandom(10))
        head = await log.head()
        spec = parse_job_spec(job(f"late-{number}", ["true"]))
        body = JobSubmitted(job=name, workspace=Workspace("default"), spec=spec)
        append = Append(stream=f"job-{name}", body=body, expected=0, workspace=body.workspace)
        said = Decided(
            service="api",
            read_to=head,
            decided_at=(await log.read(head.number - 1, 1))[0].at,
            units=(Unit(appends=(append,)),),
        )
        await log.append(said)
        os.kill(pid, signal.SIGKILL)
        at = await _queued_at(log, head.number, name)
        return at - _born_at(_pid(running))
    finally:
        await log.close()


def _pid(running: Running) -> int:
    return int(json.loads((running.home / "run" / "control.pid").read_text())["pid"])


async def _queued_at(log: PostgresLog, after: int, name: JobId) -> float:
    while True:
        for one in await log.read(after, PAGE):
            if isinstance(one.body, JobQueued) and one.body.job == name:
                return one.at.timestamp()
        await asyncio.sleep(0.02)


def _born_at(pid: int) -> float:
    """Give when a process was started, in seconds of the wall clock; to a hundredth."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / TICKS


async def _replay(url: str) -> float:
    log = await PostgresLog.connect(url)
    try:
        world, read, began = World(), 0, time.perf_counter()
        while page := await log.read(read, PAGE):
            for one in page:
                world.apply(one)
            read += len(page)
        return read / (time.perf_counter() - began)
    finally:
        await log.close()
