"""Keeps the processes of an embedded platform running, and ends them in order.

One small single-threaded loop over process descriptors and timers; standard library only. Servers
and services die with it. Agents and keepers do not, since workers depend on them: the next
supervisor adopts those that run. Whatever dies is started again, at once the first time and then
ever later. It must never touch a worker.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from ebbtide.allinone.child import (
    Child,
    Handle,
    die_with_parent,
    end,
    launch,
    read_identity,
    write_identity,
)
from ebbtide.allinone.home import LOOPBACK, Home
from ebbtide.allinone.plan import STAGES, Part

FIRST_DELAY_S = 0.2
LAST_DELAY_S = 10.0
# A process that lived as long as this has shown that it can: its next death counts as the first.
HEALTHY_AFTER_S = 30.0
# Before the first readiness, so many deaths of one service mean that it cannot start here.
FATAL_DEATHS = 5
READY_TIMEOUT_S = 90.0
HEALTH_EVERY_S = 0.02
HEALTH_TIMEOUT_S = 1.0
HOUSEKEEPING_EVERY_S = 60.0
LEFT_OVER_S = 5.0
LOG_BYTES_MAX = 16 * 2**20
STDERR = 2


class StartError(Exception):
    """The platform cannot start here; the text says why and what to do."""


class Preparation(NamedTuple):
    """Work that runs beside the start in a process of its own; ``fd`` closes when it is done."""

    pid: int
    fd: int

    def finish(self) -> None:
        """Reap the process.

        Raises:
            StartError: with what it said.
        """
        with os.fdopen(self.fd) as pipe:
            said = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        if status != 0:
            raise StartError(said.strip() or "the preparation was killed; start again")


def prepare(work: Callable[[], object]) -> Preparation:
    """Start ``work`` in a fork. It may import and allocate what we then need not keep."""
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(writer)
        return Preparation(pid, reader)
    status = 1
    try:
        die_with_parent(parent)
        work()
        status = 0
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent shall show it
        os.write(writer, str(error).encode())
    finally:
        os._exit(status)


def say(event: str, **facts: object) -> None:
    """Write one line to the supervisor's own log; on a full disk it is lost, and we go on."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with contextlib.suppress(OSError):
        os.write(STDERR, json.dumps({"at": at, "event": event, **facts}).encode() + b"\n")


def health(port: int) -> bool:
    """Say whether the HTTP interface answers that it is well."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=HEALTH_TIMEOUT_S) as connection:
            connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost: ebb\r\nConnection: close\r\n\r\n")
            return b" 200 " in connection.recv(64)
    except OSError:
        return False


class Running:
    """A part and the process that plays it, or the time at which one is due."""

    __slots__ = ("child", "deaths", "due", "handle", "part", "popen", "since")

    def __init__(self, part: Part, due: float) -> None:
        self.part = part
        self.due = due
        self.deaths = 0
        self.since = 0.0
        self.child: Child | None = None
        self.handle: Handle | None = None
        self.popen: subprocess.Popen[bytes] | None = None

    def next_delay(self, now: float) -> float:
        """Say how long to wait after the death that was just seen."""
        self.deaths = 1 if now - self.since > HEALTHY_AFTER_S else self.deaths + 1
        if self.deaths == 1:
            return 0.0
        return min(LAST_DELAY_S, FIRST_DELAY_S * 2.0 ** (self.deaths - 2))


class Supervisor:
    """The loop. ``on_ready`` is called once, when the HTTP interface first answers."""

    def __init__(self, home: Home, api_port: int, on_ready: Callable[[], None]) -> None:
        self._home = home
        self._api_port = api_port
        self._on_ready = on_ready
        self._ready = False
        self._begun = time.monotonic()
        self._running: dict[str, Running] = {}
        self._held: list[Part] = []
        self._preparation: tuple[Preparation, Part] | None = None
        self._poll = select.poll()
        self._by_fd: dict[int, Running] = {}
        self._stopping = False
        self._housekeeping = self._begun + HOUSEKEEPING_EVERY_S

    def add(self, *parts: Part) -> None:
        """Have parts run: those that outlive supervisors are adopted when they already do."""
        for part in parts:
            running = Running(part, time.monotonic())
            self._running[part.name] = running
            handle = self._left(part) if part.outlives else None
            if handle is not None:
                say("part.adopted", part=part.name, pid=handle.identity.pid)
                running.child = part.child()
                self._watch(running, handle, None)

    def add_after(self, preparation: Preparation, part: Part) -> None:
        """Have a part run once its preparation is done."""
        self._preparation = (preparation, part)
        self._poll.register(preparation.fd, select.POLLIN)

    def add_when_ready(self, *parts: Part) -> None:
        """Have parts run once the services answer; those that already run are adopted at once."""
        for part in parts:
            if read_identity(self._home.pid_file(part.name)) is None:
                self._held.append(part)
            else:
                self.add(part)

    def run(self) -> None:
        """Work until told to stop, then end every part in order.

        Raises:
            StartError: the platform did not get ready; what had been started was ended.
        """
        wake, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._told_to_stop)
        self._poll.register(wake, select.POLLIN)
        try:
            while not self._stopping:
                self._step(wake)
        finally:
            self._end_all()

    def _told_to_stop(self, number: int, _frame: object) -> None:
        say("stop.asked", signal=number)
        self._stopping = True

    def _step(self, wake: int) -> None:
        now = time.monotonic()
        for running in list(self._running.values()):
            if running.handle is None and running.due <= now:
                self._start(running)
        if not self._ready:
            self._look_for_readiness(now)
        if now >= self._housekeeping:
            self._housekeeping = now + HOUSEKEEPING_EVERY_S
            try:
                bound_logs(self._home.logs)
            except OSError as error:
                say("logs.not_bounded", error=str(error))
        for fd, _ in self._poll.poll(max(0.0, self._next_time() - time.monotonic()) * 1000):
            if fd == wake:
                os.read(wake, 512)
            elif fd in self._by_fd:
                self._ended(self._by_fd[fd])
            elif self._preparation is not None:
                self._prepared(*self._preparation)

    def _next_time(self) -> float:
        times = [running.due for running in self._running.values() if running.handle is None]
        times.append(self._housekeeping)
        if not self._ready:
            times.append(time.monotonic() + HEALTH_EVERY_S)
        return min(times)

    def _prepared(self, preparation: Preparation, part: Part) -> None:
        self._poll.unregister(preparation.fd)
        self._preparation = None
        preparation.finish()
        self.add(part)

    def clear(self, parts: Sequence[Part]) -> None:
        """End what a killed supervisor left of parts that should have died with it."""
        for part in parts:
            handle = self._left(part)
            if handle is not None:
                say("part.left_over", part=part.name, pid=handle.identity.pid)
                end(handle, signal.SIGKILL, LEFT_OVER_S)
                handle.close()

    def _left(self, part: Part) -> Handle | None:
        identity = read_identity(self._home.pid_file(part.name))
        if identity is None:
            return None
        try:
            return Handle(identity)
        except ProcessLookupError:
            return None

    def _start(self, running: Running) -> None:
        running.since = time.monotonic()  # also where nothing comes of it: that is no healthy life
        try:
            running.child = running.part.child()
            popen = launch(running.child)
        except OSError as error:
            say("part.not_started", part=running.part.name, error=str(error))
            self._buried(running, None)
            return
        try:
            handle = Handle.of(popen.pid)
        except ProcessLookupError:
            self._buried(running, popen.wait())
            return
        try:
            write_identity(self._home.pid_file(running.part.name), handle.identity)
        except OSError as error:
            # What nobody could find again must not run.
            say("part.not_started", part=running.part.name, error=str(error))
            end(handle, signal.SIGKILL, LEFT_OVER_S)
            handle.close()
            self._buried(running, popen.wait())
            return
        say("part.started", part=running.part.name, pid=popen.pid)
        self._watch(running, handle, popen)

    def _watch(
        self, running: Running, handle: Handle, popen: "subprocess.Popen[bytes] | None"
    ) -> None:
        running.handle, running.popen, running.since = handle, popen, time.monotonic()
        self._by_fd[handle.fd] = running
        self._poll.register(handle.fd, select.POLLIN)

    def _ended(self, running: Running) -> None:
        self._forget(running)
        code = running.popen.wait() if running.popen is not None else None
        self._buried(running, code)

    def _forget(self, running: Running) -> None:
        handle = running.handle
        if handle is not None:
            self._poll.unregister(handle.fd)
            del self._by_fd[handle.fd]
            handle.close()
            running.handle = None

    def _buried(self, running: Running, code: int | None) -> None:
        now = time.monotonic()
        delay = running.next_delay(now)
        running.due = now + delay
        name = running.part.name
        say("part.ended", part=name, status=code, deaths=running.deaths, again_in_s=delay)
        if not self._ready and running.deaths >= FATAL_DEATHS and not running.part.outlives:
            raise StartError(
                f"{name} cannot start; the end of {self._home.logs / name}.log:\n"
                + tail(self._home.logs / f"{name}.log")
            )

    def _look_for_readiness(self, now: float) -> None:
        if health(self._api_port):
            self._ready = True
            say("platform.ready", seconds=round(time.monotonic() - self._begun, 3))
            self._on_ready()
            self.add(*self._held)
            self._held.clear()
        elif now - self._begun > READY_TIMEOUT_S:
            raise StartError(
                f"the services did not answer within {READY_TIMEOUT_S:.0f} s; "
                f"look into {self._home.logs}"
            )

    def _end_all(self) -> None:
        """End the parts stage by stage; within a stage all at once."""
        if self._preparation is not None:
            os.kill(self._preparation[0].pid, signal.SIGKILL)
        for stage in STAGES:
            self._end_stage([r for r in self._running.values() if r.part.stage == stage])
        say("platform.ended")

    def _end_stage(self, members: Sequence[Running]) -> None:
        for running in members:
            if running.handle is not None and running.child is not None:
                running.handle.send(running.child.stop_signal)
        for running in members:
            if running.handle is not None and running.child is not None:
                clean = end(running.handle, 0, running.child.stop_s)
                say("part.stopped", part=running.part.name, clean=clean)
                self._forget(running)
            if running.popen is not None:
                running.popen.wait()
            self._home.pid_file(running.part.name).unlink(missing_ok=True)


def end_unplanned(home: Home, planned: Collection[str]) -> None:
    """End processes of a former plan: nodes that were taken away, services of the other mode."""
    for path in home.run.glob("*.pid"):
        identity = read_identity(path) if path.stem not in planned else None
        if identity is None or identity.pid == os.getpid():
            continue
        say("part.unplanned", part=path.stem, pid=identity.pid)
        with contextlib.suppress(ProcessLookupError):
            handle = Handle(identity)
            end(handle, signal.SIGTERM, LEFT_OVER_S)
            handle.close()
        path.unlink(missing_ok=True)


def tail(path: Path, size: int = 2000) -> str:
    """Give the last lines of a log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""


def bound_logs(folder: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
    """Keep each log and one predecessor, both bounded.

    The writers hold their file open for appending, also across our death, so the file is copied and
    emptied in place; lines written between the two steps are lost.
    """
    for path in folder.glob("*.log"):
        size = path.stat().st_size
        if size <= bytes_max:
            continue
        with path.open("rb") as source, path.with_suffix(".log.1").open("wb") as target:
            source.seek(max(0, size - bytes_max))
            while block := source.read(2**20):
                target.write(block)
        os.truncate(path, 0)
