"""Cgroups of workers: limits of memory, CPU and processes, on version 1 and version 2.

Each sitter has one group, in which its workers are born; groups are made once and used again, since
making and removing a memory group costs more than starting a process. Where no group can be
written, workers run without limits, in process groups only. This never touches a group outside its
own subtree, and moves no foreign process.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import structlog

from ebbtide.contracts.units import MILLI

CPU_PERIOD_US = 100_000
PIDS_MAX = 16_384
"""Processes and threads of one worker: above what frameworks start, below what starves a node."""
LEAVE_S = 0.2
"""How long an agent that ends waits for its idle sitters to be out of their groups."""
ENDED_S = 2.0
"""How long one waits for that who has just ended all of a node's sitters."""
NOTE = "cgroups"
_WANTED = ("cpu", "memory", "pids")
_log = structlog.get_logger()


class Limits(NamedTuple):
    """What a worker may use; 0 is no limit."""

    cpu_milli: int = 0
    memory_mib: int = 0


def cpu_quota_us(cpu_milli: int) -> int:
    """Give the CPU time per period that a request allows; the kernel refuses less than 1 ms."""
    return max(1000, cpu_milli * CPU_PERIOD_US // MILLI)


class Group(NamedTuple):
    """Where a sitter joins, by writing there, and where the kernel counts its kills."""

    procs: tuple[str, ...] = ()
    oom: str = ""


class Backend(Protocol):
    """One version of cgroups."""

    def make(self, name: str) -> Group:
        """Make the group if it is not there."""
        ...

    def limit(self, name: str, limits: Limits) -> None:
        """Set limits anew."""
        ...

    def bases(self) -> list[Path]:
        """Name the folders that all groups of the node are in."""
        ...


class Version1:
    """One tree per controller."""

    def __init__(self, bases: Mapping[str, Path]) -> None:
        self._bases = dict(bases)

    def make(self, name: str) -> Group:
        """Make the group in every tree."""
        for base in self._bases.values():
            (base / name).mkdir(parents=True, exist_ok=True)
        memory = self._bases.get("memory")
        procs = tuple(str(base / name / "cgroup.procs") for base in self._bases.values())
        return Group(procs, str(memory / name / "memory.oom_control") if memory else "")

    def limit(self, name: str, limits: Limits) -> None:
        """Write the limits of every tree there is."""
        cpu, memory, pids = (self._bases.get(controller) for controller in _WANTED)
        if cpu:
            quota = cpu_quota_us(limits.cpu_milli) if limits.cpu_milli else -1
            (cpu / name / "cpu.cfs_period_us").write_text(str(CPU_PERIOD_US))
            (cpu / name / "cpu.cfs_quota_us").write_text(str(quota))
        if memory:
            bytes_ = limits.memory_mib << 20 if limits.memory_mib else -1
            (memory / name / "memory.limit_in_bytes").write_text(str(bytes_))
        if pids:
            (pids / name / "pids.max").write_text(str(PIDS_MAX))

    def bases(self) -> list[Path]:
        """Name the folder in every tree."""
        return list(self._bases.values())


class Version2:
    """One tree for all controllers; those that were not delegated are left out."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def make(self, name: str) -> Group:
        """Make the group."""
        folder = self._base / name
        folder.mkdir(parents=True, exist_ok=True)
        events = folder / "memory.events"
        return Group((str(folder / "cgroup.procs"),), str(events) if events.exists() else "")

    def limit(self, name: str, limits: Limits) -> None:
        """Write the limits of the controllers there are."""
        quota = str(cpu_quota_us(limits.cpu_milli)) if limits.cpu_milli else "max"
        memory = str(limits.memory_mib << 20) if limits.memory_mib else "max"
        values = {
            "cpu.max": f"{quota} {CPU_PERIOD_US}",
            "memory.max": memory,
            "pids.max": str(PIDS_MAX),
        }
        for file, value in values.items():
            path = self._base / name / file
            if path.exists():
                path.write_text(value)

    def bases(self) -> list[Path]:
        """Name the one folder."""
        return [self._base]


class Groups:
    """The groups of a node's sitters, by number."""

    def __init__(self, backend: Backend | None) -> None:
        self._backend = backend
        self._made: dict[int, Group] = {}
        self._limits: dict[int, Limits] = {}

    def known(self, number: int) -> Group:
        """Give a group, made if need be; an empty one where there are no cgroups."""
        if self._backend is None or number < 0:
            return Group()
        try:
            return self._made.get(number) or self._made.setdefault(
                number, self._backend.make(f"w{number}")
            )
        except OSError as error:
            _log.warning("cgroup.refused", group=number, error=str(error))
            return Group()

    def limit(self, number: int, limits: Limits) -> None:
        """Set a group's limits; what a former worker left behind may not fit them yet.

        A start without limits is better than none, and the next one tries again.
        """
        if self._backend is None or number not in self._made or self._limits.get(number) == limits:
            return
        try:
            self._backend.limit(f"w{number}", limits)
            self._limits[number] = limits
        except OSError as error:
            _log.warning("cgroup.unlimited", group=number, error=str(error))
            self._limits.pop(number, None)

    def close(self) -> None:
        """Remove the groups that nobody is in; those of running workers stay for the next agent."""
        if self._backend is not None:
            _remove(self._backend.bases(), LEAVE_S)


def note(state: Path, backend: Backend | None) -> None:
    """Write down where a node's groups are, for who ends the node when its agent was killed."""
    bases = backend.bases() if backend else []
    (state / NOTE).write_text("".join(f"{base}\n" for base in bases))


def remove(state: Path) -> None:
    """Remove the groups of a node that was ended; one that somebody is still in stays."""
    try:
        bases = (state / NOTE).read_text().splitlines()
    except FileNotFoundError:
        return
    _remove([Path(base) for base in bases], ENDED_S)


def _remove(bases: Sequence[Path], patience_s: float) -> None:
    """Remove groups, made by this agent or a former one, and what they are in.

    Sitters are leaving just now, so it looks again for a moment.
    """
    left = [group for base in bases for group in base.glob("w*")]
    deadline = time.monotonic() + patience_s
    while left := [group for group in left if not _removed(group)]:
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)
    for base in bases:
        _removed(base)


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def members(group: Group) -> set[int]:
    """List the processes in a group."""
    found: set[int] = set()
    for path in group.procs:
        try:
            found.update(int(pid) for pid in Path(path).read_text().split())
        except OSError:
            continue
    return found


def find(state: Path, given: str, own: str, mounts: str) -> Backend | None:
    """Choose the back end for an agent.

    Args:
        state: the agent's state folder; its groups are named after it, so agents do not meet.
        given: a cgroup path (as in /proc/self/cgroup) that was delegated to the agent; its own if
            empty.
        own: the text of /proc/self/cgroup.
        mounts: the text of /proc/self/mounts.
    """
    unique = "ebbtide/" + hashlib.blake2b(str(state).encode(), digest_size=6).hexdigest()
    paths = _own_paths(own)
    places = _mounts(mounts)
    bases: dict[str, Path] = {}
    for controller in _WANTED:
        if controller in places and controller in paths:
            path = given or paths[controller]
            bases[controller] = Path(f"{places[controller]}/{path.strip('/')}") / unique
    if bases:
        usable = {name: base for name, base in bases.items() if _can_make(base)}
        return Version1(usable) if usable else None
    if "" in places and "" in paths:
        path = given or paths[""]
        base = Path(f"{places['']}/{path.strip('/')}")
        return Version2(base / unique) if _delegate(base, unique) else None
    return None


def _own_paths(text: str) -> dict[str, str]:
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _mounts(text: str) -> dict[str, str]:
    """Give the mount point of each controller; the unified tree's is under the empty name."""
    places: dict[str, str] = {}
    for line in text.splitlines():
        _, place, kind, options = line.split(" ", 4)[:4]
        if kind == "cgroup2":
            places.setdefault("", place)
        elif kind == "cgroup":
            for option in options.split(","):
                places.setdefault(option, place)
    return places


def _can_make(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _log.info("cgroup.unusable", folder=str(folder), error=str(error))
        return False
    return True


def _delegate(base: Path, unique: str) -> bool:
    """Hand controllers down to our subtree, as far as they are ours to hand.

    A group with processes of its own (other than the root) may not do so: then workers get a group
    without limits, which still counts and names their processes.
    """
    if not _can_make(base / unique):
        return False
    for folder in (base, *(base / part for part in (unique.split("/", maxsplit=1)[0], unique))):
        for controller in _WANTED:
            try:
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError as error:
                _log.info("cgroup.not_delegated", folder=str(folder), error=str(error))
    return True
