"""What every bench stands on: a platform of its own, statistics, and the state of the machine.

A result is one JSON object with its command, seed, machine, load and a yardstick: sequential spawns
of ``/bin/true`` per second. Under 1,200 the machine is busy and the figure must not be quoted.
"""

import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ebbtide.client.client import Client

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "bench" / "peers"  # peers, where somebody has put them
BUSY_BELOW = 1_200
TICKS = os.sysconf("SC_CLK_TCK")


def spawns_per_s(count: int = 200) -> float:
    """Take the yardstick."""
    began = time.monotonic()
    for _ in range(count):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)
    return round(count / (time.monotonic() - began))


def percentile(values: Sequence[float], part: float) -> float:
    """Give the nearest-rank percentile."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, round(part * (len(ranked) - 1)))]


def summary(values: Sequence[float]) -> dict[str, float]:
    """Sum up a sample."""
    return {
        "n": len(values),
        "p50": round(statistics.median(values), 3),
        "p90": round(percentile(values, 0.90), 3),
        "p99": round(percentile(values, 0.99), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
    }


class Results:
    """Where figures go: printed, and one JSON line each in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)

    def add(self, name: str, **figures: object) -> None:
        """Record a figure with the state of the machine at this moment."""
        spawns = spawns_per_s()
        row = {
            "bench": name,
            **figures,
            "load1": round(os.getloadavg()[0], 2),
            "spawns_per_s": spawns,
            "busy": spawns < BUSY_BELOW,
            "machine": f"{os.cpu_count()} cpus, {platform.machine()}, Linux {platform.release()}",
            "python": platform.python_version(),
            "command": " ".join(["python", "-m", "tests.bench", *sys.argv[1:]]),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        with self._file.open("a") as out:
            out.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


class CpuScope:
    """CPU seconds of this process and all it starts, by its own cgroup (v1 or v2); NaN without."""

    def __init__(self) -> None:
        self._file: Path | None = None
        for base, name in (
            ("/sys/fs/cgroup/cpuacct", "cpuacct.usage"),
            ("/sys/fs/cgroup", "cpu.stat"),
        ):
            folder = Path(base) / f"ebb-bench-{os.getpid()}"
            with contextlib.suppress(OSError):
                folder.mkdir(exist_ok=True)
                if (folder / name).exists():
                    (folder / "cgroup.procs").write_text(str(os.getpid()))
                    self._file = folder / name
                    return
                folder.rmdir()

    def seconds(self) -> float:
        """Read the sum."""
        if self._file is None:
            return float("nan")
        text = self._file.read_text()
        if self._file.name == "cpuacct.usage":
            return int(text) / 1e9
        return int(text.split()[1]) / 1e6


class Running:
    """A platform that runs: its client, and what its processes use."""

    def __init__(self, home: Path, facts: dict[str, object]) -> None:
        self.home = home
        self.facts = facts
        self._environ = {**os.environ, "EBB_HOME": str(home)}
        self.client = Client.from_environment(self._environ)

    def another_client(self) -> Client:
        """Open a connection of its own."""
        return Client.from_environment(self._environ)

    def processes(self) -> dict[int, str]:
        """Give the platform's processes (not workers): pid to command line."""
        mine = str(self.home).encode()
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    environ = (folder / "environ").read_bytes()
                    command = (folder / "cmdline").read_bytes()
                    if mine in environ or mine in command:
                        words = command.replace(b"\0", b" ").decode(errors="replace")
                        found[int(folder.name)] = words.strip()
        found.pop(os.getpid(), None)
        for folder in Path("/proc").iterdir():  # Postgres hides its environment from its name
            with contextlib.suppress(OSError, ValueError, IndexError):
                parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if "postgres" in found.get(parent, ""):
                    found[int(folder.name)] = "postgres"
        return found

    def pss_mb(self) -> dict[str, float]:
        """Give proportional set size by kind of process, in MB, and the sum."""
        sums: dict[str, float] = {}
        for pid, command in self.processes().items():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        kind = _kind(command)
                        sums[kind] = round(sums.get(kind, 0) + int(line.split()[1]) / 1024, 1)
        return {**sums, "sum": round(sum(sums.values()), 1)}

    def cpu_s(self) -> float:
        """Give CPU seconds used by the platform's processes so far."""
        used = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                used += int(fields[11]) + int(fields[12])
        return used / TICKS


def _kind(command: str) -> str:
    for word, kind in (
        ("postgres", "postgres"),
        ("nats-server", "nats"),
        ("allinone.control", "control"),
        ("keeper", "keeper"),
        ("ebbtide.agent", "agent"),
        ("ebbtide.allinone", "supervisor"),
    ):
        if word in command:
            return kind
    return command.rsplit(" -m ", maxsplit=1)[-1][:40]


def ebb(home: Path, *words: str) -> str:
    """Run the ``ebb`` command on ``home`` and give what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "ebbtide.cli", *words],
        env={**os.environ, "EBB_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode:
        raise RuntimeError(f"ebb {' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def up(*words: str) -> Iterator[Running]:
    """Have a platform of its own: a fresh home, started with ``ebb up`` and ended afterwards."""
    parent = Path(tempfile.mkdtemp(prefix="ebb-bench-", dir="/tmp"))  # reachable by Postgres's user
    parent.chmod(0o711)
    home = parent / "home"
    try:
        facts = json.loads(ebb(home, "up", "--json", *words))
        running = Running(home, facts)
        wait_for(running.client.nodes, 20)
        yield running
    finally:
        with contextlib.suppress(RuntimeError):
            ebb(home, "down")
        shutil.rmtree(parent, ignore_errors=True)


def wait_for(holds: object, timeout_s: float, every_s: float = 0.005) -> None:
    """Return once ``holds()`` is true."""
    deadline = time.monotonic() + timeout_s
    while not holds():  # type: ignore[operator]  # a callable
        if time.monotonic() > deadline:
            raise TimeoutError("it did not come to hold")
        time.sleep(every_s)


def stamp_program(folder: Path) -> Path:
    """Compile the small static program that stamps its first instruction."""
    program = folder / "stamp"
    source = Path(__file__).with_name("stamp.c")
    subprocess.run(["cc", "-O2", "-static", "-o", str(program), str(source)], check=True)
    return program


def job(name: str, command: Sequence[str], cpu: str = "1") -> dict[str, object]:
    """Describe a one-worker job that is started once."""
    resources = {"cpu": cpu, "memory": "64Mi"}
    return {
        "name": name,
        "command": list(command),
        "restart": {"max_restarts": 0},
        "roles": {"worker": {"replicas": 1, "resources": resources}},
    }
