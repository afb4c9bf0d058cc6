"""What is measured: latency, throughput, submits, memory, starts. Each takes results and a seed."""

import concurrent.futures
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.bench.ground import (
    CpuScope,
    Results,
    Running,
    ebb,
    job,
    stamp_program,
    summary,
    up,
    wait_for,
)

from ebbtide.contracts.ids import JobId

SLOTS = ("--nodes", "1", "--capacity", "cpu=16,memory=16Gi")
LATENCY_JOBS = 300


def latency(results: Results, seed: int, *, split: bool = False) -> None:
    """Submit over HTTP to first instruction of a one-worker job on an idle platform."""
    dice = random.Random(seed)
    words = (*SLOTS, "--split") if split else SLOTS
    with up(*words) as running, _stamps() as (program, folder):
        _warm(running)
        waits = []
        for number in range(LATENCY_JOBS):
            file = folder / f"idle-{number}"
            began = time.time()
            running.client.submit(job("idle", [str(program), str(file)]))
            waits.append((_stamp(file) - began) * 1e3)
            time.sleep(dice.uniform(0.01, 0.05))
        name = "latency.split" if split else "latency.idle"
        results.add(name, unit="ms", seed=seed, submit_to_first_instruction=summary(waits))


def latency_at_rate(results: Results, seed: int, rate: int = 300, seconds: int = 5) -> None:
    """Measure the same at a steady rate of submits, by a Poisson-free fixed pace."""
    with up(*SLOTS) as running, _stamps() as (program, folder):
        _warm(running)
        count = rate * seconds
        began: dict[int, float] = {}
        clients = [running.another_client() for _ in range(4)]
        start = time.monotonic() + 0.2
        cpu = running.cpu_s()

        def send(lane: int) -> None:
            for number in range(lane, count, len(clients)):
                pause = start + number / rate - time.monotonic()
                if pause > 0:
                    time.sleep(pause)
                began[number] = time.time()
                clients[lane].submit(job("pace", [str(program), str(folder / f"pace-{number}")]))

        threads = [threading.Thread(target=send, args=(lane,)) for lane in range(len(clients))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        waits = [(_stamp(folder / f"pace-{n}") - began[n]) * 1e3 for n in range(count)]
        used = running.cpu_s() - cpu
        results.add(
            f"latency.at_{rate}_per_s",
            unit="ms",
            seed=seed,
            submit_to_first_instruction=summary(waits),
            platform_cpu_ms_per_job=round(used / count * 1e3, 2),
        )


def throughput(results: Results, seed: int, count: int) -> None:
    """Run separate no-op jobs to their recorded ends, 16 slots, every event durable."""
    scope = CpuScope()
    with up(*SLOTS) as running:
        _warm(running)
        cpu = scope.seconds()
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            clients = [running.another_client() for _ in range(16)]
            lanes = [pool.submit(_submit_many, clients[n], count // 16) for n in range(16)]
            total = sum(len(lane.result()) for lane in lanes)
        submitted = time.monotonic() - began
        _wait_all(running, total)
        took = time.monotonic() - began
        results.add(
            f"throughput.{count}",
            seed=seed,
            jobs_per_s=round(total / took, 1),
            submit_s=round(submitted, 2),
            cpu_ms_per_job=round((scope.seconds() - cpu) / total * 1e3, 2),
            pss_mb=running.pss_mb(),
        )


def steady(results: Results, seed: int, rate: int = 100, seconds: int = 10) -> None:
    """Measure CPU per job, all parts, at a steady moderate rate."""
    scope = CpuScope()
    with up(*SLOTS) as running:
        _warm(running)
        cpu = scope.seconds()
        start = time.monotonic()
        for number in range(rate * seconds):
            pause = start + number / rate - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            running.client.submit(job("steady", ["/bin/true"]))
        _wait_all(running, rate * seconds)
        used = scope.seconds() - cpu
        results.add(
            f"cpu.at_{rate}_per_s", seed=seed, cpu_ms_per_job=round(used / rate / seconds * 1e3, 2)
        )


def submits(results: Results, seed: int, seconds: float = 4.0) -> None:
    """Count durable submits per second over HTTP, on one connection and on 16, by raw sockets."""
    from tests.bench.flood import flood

    for connections in (1, 16):
        with up("--nodes", "1", "--capacity", "cpu=1m,memory=1Mi") as running:
            done, waits = flood(running, connections, seconds)
            results.add(
                f"submits.{connections}",
                seed=seed,
                per_s=round(done / seconds),
                latency_ms=summary(waits),
            )


def memory(results: Results, seed: int, jobs: int = 10_000) -> None:
    """Measure the idle set, its CPU while idle, and its growth after many finished jobs."""
    with up(*SLOTS) as running:
        time.sleep(3)
        before = running.pss_mb()
        cpu, began = running.cpu_s(), time.monotonic()
        time.sleep(10)
        idle = (running.cpu_s() - cpu) / (time.monotonic() - began) * 100
        results.add("memory.idle", seed=seed, pss_mb=before, idle_cpu_percent=round(idle, 2))
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            clients = [running.another_client() for _ in range(16)]
            list(pool.map(lambda client: _submit_many(client, jobs // 16), clients))
        _wait_all(running, jobs // 16 * 16)
        time.sleep(5)
        after = running.pss_mb()
        grown = round(after["sum"] - before["sum"], 1)
        results.add("memory.grown", seed=seed, jobs=jobs, pss_mb=after, growth_mb=grown)


def starts(results: Results, seed: int, rounds: int = 5) -> None:
    """Measure cold and warm starts to the first accepted job, and the two hot commands."""
    cold, warm = [], []
    commands: dict[str, object] = {}
    for _ in range(rounds):
        parent = Path(tempfile.mkdtemp(prefix="ebb-bench-", dir="/tmp"))
        parent.chmod(0o711)
        home = parent / "home"
        try:
            cold.append(_start(home))
            ebb(home, "down")
            warm.append(_start(home))
            if len(warm) == rounds:
                commands = _commands(home)
            ebb(home, "down")
        finally:
            shutil.rmtree(parent, ignore_errors=True)
    results.add("start", unit="s", seed=seed, cold=summary(cold), warm=summary(warm))
    results.add("commands", unit="ms", seed=seed, **commands)


def _start(home: Path) -> float:
    began = time.monotonic()
    facts = ebb(home, "up", "--json")
    running = Running(home, {"facts": facts})
    running.client.submit(job("first", ["/bin/true"]))
    return time.monotonic() - began


def _commands(home: Path) -> dict[str, object]:
    import os

    program = Path(sys.executable).with_name("ebb")
    took: dict[str, object] = {}
    for verb in ("version", "ls"):
        waits = []
        for _ in range(15):
            began = time.monotonic()
            subprocess.run(
                [str(program), verb],
                env={**os.environ, "EBB_HOME": str(home)},
                check=True,
                capture_output=True,
            )
            waits.append((time.monotonic() - began) * 1e3)
        took[verb] = summary(waits)
    return took


class _stamps:  # noqa: N801 - used as a function
    """A folder for stamps, and the program that writes them."""

    def __enter__(self) -> tuple[Path, Path]:
        self._folder = Path(tempfile.mkdtemp(prefix="ebb-stamps-", dir="/tmp"))
        self._folder.chmod(0o777)
        return stamp_program(self._folder), self._folder

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _stamp(file: Path, timeout_s: float = 30.0) -> float:
    """Wait for a stamp and read it, in seconds of the wall clock."""
    wait_for(lambda: file.exists() and file.stat().st_size > 10, timeout_s, every_s=0.001)
    return int(file.read_text()) / 1e9


def _warm(running: Running) -> None:
    """Run a few jobs first: byte code, plans and pools of a fresh platform are no steady state."""
    for _ in range(20):
        running.client.submit(job("warm", ["/bin/true"]))
    _wait_all(running, 0)


def _submit_many(client: object, count: int) -> list[JobId]:
    return [client.submit(job("noop", ["/bin/true"])) for _ in range(count)]  # type: ignore[attr-defined]


def _wait_all(running: Running, _total: int, timeout_s: float = 300.0) -> None:
    """Wait until no job is on its way to its end."""

    def done() -> bool:
        counts = running.client.status().jobs
        final = {"succeeded", "failed", "stopped", "rejected"}
        if counts.get("failed", 0):
            raise RuntimeError(f"jobs failed: {counts}")
        return not any(amount for phase, amount in counts.items() if phase not in final)

    wait_for(done, timeout_s, every_s=0.02)
