"""Reconciles desired state with what runs on the node, and says what became of it.

It holds what the node knows of its workers, takes the policy's steps, and hears from the runtime.
All of it is synchronous and quick: a desired state is dealt with whole before the next one is
looked at. It must never start a worker twice, nor one whose attempt was ended, whatever arrives in
whatever order.
"""

import asyncio
import datetime as dt
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import structlog

from ebbtide.agent.model import Ending, Life, Note, WorkerKey
from ebbtide.agent.policy import Bury, End, Fence, Known, Phase, Prepare, Start, Step, decide
from ebbtide.agent.ports import Rendezvous
from ebbtide.agent.reports import Outbox, key_of_report
from ebbtide.agent.runtimes import Heard, Runtime, Signal
from ebbtide.agent.runtimes.plans import Host, key_of, plan
from ebbtide.agent.tombstones import Tombstones
from ebbtide.contracts.agents import (
    Desired,
    DesiredAttempt,
    DesiredWorker,
    WorkerReport,
    WorkerState,
)
from ebbtide.contracts.errors import EbbtideError
from ebbtide.contracts.ids import JobId
from ebbtide.contracts.outcomes import EndCause

SEEN_BYTES = 64
RETRY_S = 1.0
_STATES = {
    Phase.PREPARED: WorkerState.PREPARED,
    Phase.STARTING: WorkerState.PREPARED,
    Phase.RUNNING: WorkerState.RUNNING,
    Phase.ENDED: WorkerState.ENDED,
}
_log = structlog.get_logger()


class Worker(msgspec.Struct, eq=False, kw_only=True):
    """A worker as this agent knows it.

    ``ordered`` to end by this agent, ``was_ordered`` by any before; ``over`` when the log holds
    its end.
    """

    key: WorkerKey
    phase: Phase
    slot: int = -1
    port: int = 0
    pid: int = 0
    started_ns: int = 0
    stop: bool = False
    ordered: bool = False
    was_ordered: bool = False
    over: bool = False
    end: Ending | None = None
    grace: asyncio.TimerHandle | None = None

    def report(self) -> WorkerReport:
        """Say the newest state."""
        end = self.end
        return WorkerReport(
            job=JobId(self.key.job),
            epoch=self.key.epoch,
            attempt=self.key.attempt,
            round=self.key.round,
            worker=self.key.worker,
            state=_STATES[self.phase],
            port=self.port,
            pid=self.pid,
            started_at=_time(self.started_ns),
            ended_at=_time(end.at_ns) if end else None,
            cause=end.cause if end else None,
            status=end.status if end else None,
            ordered=self.was_ordered,
            detail=end.detail if end else "",
            log_bytes=end.log_bytes if end else 0,
        )


class Buried:
    """What is left of a worker whose slot is another's: it has ended, and all is done."""

    phase = Phase.ENDED
    ordered = True


_BURIED = Buried()


def _time(unix_ns: int) -> dt.datetime | None:
    return dt.datetime.fromtimestamp(unix_ns / 1e9, dt.UTC) if unix_ns else None


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What a supervisor works with. ``on_over`` is told each worker whose end the log holds."""

    boot: str
    host: Host
    runtime: Runtime
    ports: Rendezvous
    outbox: Outbox
    tombstones: Tombstones
    seen: Path
    on_over: Callable[[Worker], None]


class Supervisor:
    """The node's workers and what is done about them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._runtime, self._outbox, self._ports = parts.runtime, parts.outbox, parts.ports
        self._known: dict[str, dict[WorkerKey, Known]] = {}
        self._fences: dict[str, Fence] = {}
        self._desired = Desired(epoch=0, position=0)
        self._seen = os.open(parts.seen, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._again: asyncio.Handle | None = None
        self.lease_stands = False

    def adopt(self) -> None:
        """Take over what a former agent knew, and say all of it."""
        words = os.pread(self._seen, SEEN_BYTES, 0).split()
        if len(words) == 2:
            self._outbox.position = (int(words[0]), int(words[1]))
        for key in self._parts.tombstones:
            self._know(key, _BURIED)
        self._outbox.on_settled, self._outbox.on_epoch = self.on_settled, self.say_whole
        for life in self._runtime.observe(Heard(self.on_running, self.on_ended)):
            worker = Worker(key=life.key, phase=Phase.STARTING)
            self._know(life.key, worker)
            worker.slot, worker.port, worker.stop = life.slot, life.note.port, life.note.stop
            worker.was_ordered = life.ordered
            self._ports.reserve(worker.port)
            if life.end is not None:
                self.on_ended(life)
            elif life.pid:
                self.on_running(life.key, life.pid, life.started_ns)

    def _know(self, key: WorkerKey, one: Known) -> None:
        self._known.setdefault(key.job, {})[key] = one
        if key.fence > self._fences.get(key.job, (0, 0, 0)):
            self._fences[key.job] = key.fence

    def workers(self) -> Iterator[Worker]:
        """Give every worker that still has a slot or a promise."""
        for here in self._known.values():
            yield from (one for one in here.values() if isinstance(one, Worker))

    def find(self, job: str, attempt: int, worker: int) -> Worker | None:
        """Find a worker by what people know of it; the newest if there are several."""
        found = [
            one
            for key, one in self._known.get(job, {}).items()
            if isinstance(one, Worker) and (key.attempt, key.worker) == (attempt, worker)
        ]
        return max(found, key=lambda one: one.key, default=None)

    def take(self, desired: Desired) -> None:
        """Take a desired state in, unless it is older than what was seen, and do what it asks."""
        seen = self._outbox.position
        if (desired.epoch, desired.position) < seen:
            return
        self._desired = desired
        self._outbox.position = (desired.epoch, desired.position)
        os.pwrite(self._seen, b"%-20d %-20d" % self._outbox.position, 0)
        if desired.epoch > seen[0] > 0:
            self.say_whole()
        self.reconcile()

    def reconcile(self) -> None:
        """Do what is not yet as desired.

        Of what was wanted of a former life of the machine only the ends are for this one: the rest
        is called lost, and is placed elsewhere before it would be withdrawn here.
        """
        self._again = None
        desired = self._desired
        ours = desired.boot in ("", self._parts.boot)
        attempts = [one for one in desired.attempts if ours or one.end is not None]
        for attempt in attempts:
            fence = (attempt.epoch, attempt.attempt, attempt.round)
            if attempt.end is None and fence > self._fences.get(attempt.job, (0, 0, 0)):
                self._fences[attempt.job] = fence
        steps = decide(attempts, self._known, self._fences, self.lease_stands)
        for step in list(steps):
            try:
                self._do(step)
            except EbbtideError as error:
                _log.error("step.failed", step=type(step).__name__, error=str(error))
                asyncio.get_running_loop().call_later(RETRY_S, self.reconcile_soon)

    def reconcile_soon(self) -> None:
        """Reconcile once the loop is free: something changed that a step may have waited for."""
        if self._again is None:
            self._again = asyncio.get_running_loop().call_soon(self.reconcile)

    def _do(self, step: Step) -> None:
        match step:
            case Start(attempt, worker):
                self._start(attempt, worker)
            case Prepare(attempt, worker):
                one = Worker(key=key_of(attempt, worker), phase=Phase.PREPARED)
                one.port = self._ports.take() if worker.worker == 0 else 0
                self._know(one.key, one)
                self._outbox.put(one.report())
            case End(key, grace_s):
                self._end(key, grace_s)
            case Bury(key, why):
                self._bury(key, why)

    def _start(self, attempt: DesiredAttempt, worker: DesiredWorker) -> None:
        key = key_of(attempt, worker)
        known = self._known.get(attempt.job, {}).get(key)
        one = known if isinstance(known, Worker) else Worker(key=key, phase=Phase.STARTING)
        master = attempt.master or self._alone(one)
        if worker.worker == 0 and not one.port:
            one.port = int(master.rpartition(":")[2])
            self._ports.claim(one.port)
        self._ports.let_bind(one.port)
        one.phase, one.stop = Phase.STARTING, attempt.when_cut_off == "stop"
        note = Note(stop=one.stop, port=one.port)
        self._know(key, one)
        one.slot = self._runtime.start(plan(self._parts.host, attempt, worker, master, note)).slot

    def _alone(self, one: Worker) -> str:
        """Give a worker without others a rendezvous of its own, with no word from anybody."""
        one.port = self._ports.take()
        return f"{self._parts.host.address}:{one.port}"

    def _end(self, key: WorkerKey, grace_s: int) -> None:
        one = self._known[key.job][key]
        if not isinstance(one, Worker):
            return
        one.ordered = one.was_ordered = True
        loop = asyncio.get_running_loop()
        one.grace = loop.call_later(grace_s, self._runtime.signal, key, Signal.KILL)
        self._runtime.signal(key, Signal.TERMINATE)

    def _bury(self, key: WorkerKey, why: str) -> None:
        known = self._known.get(key.job, {}).get(key)
        one = known if isinstance(known, Worker) else Worker(key=key, phase=Phase.STARTING)
        one.was_ordered = True
        life = self._runtime.bury(key, Note(), why)
        one.slot = life.slot
        self._know(key, one)
        self.on_ended(life)

    def on_running(self, key: WorkerKey, pid: int, started_ns: int) -> None:
        """Hear that a worker was executed."""
        one = self._known.get(key.job, {}).get(key)
        if isinstance(one, Worker) and one.phase < Phase.RUNNING:
            one.phase, one.pid, one.started_ns = Phase.RUNNING, pid, started_ns
            self._outbox.put(one.report())

    def on_ended(self, life: Life) -> None:
        """Hear that nothing of a worker is left."""
        one = self._known.get(life.key.job, {}).get(life.key)
        if not isinstance(one, Worker) or one.phase is Phase.ENDED:
            return
        one.phase, one.end = Phase.ENDED, life.end
        one.pid, one.started_ns = life.pid or one.pid, life.started_ns or one.started_ns
        if one.grace:
            one.grace.cancel()
            one.grace = None
        self._ports.release(one.port)
        self._outbox.put(one.report())
        cause = life.end.cause if life.end else EndCause.LOST
        _log.debug("worker.ended", worker=str(life.key), cause=cause.value)
        if self._fences[life.key.job] > life.key.fence:
            self.reconcile_soon()  # a later attempt waits for this one's end

    def on_settled(self, report: WorkerReport) -> None:
        """Hear that the log holds a state; an end that it holds is over for the node."""
        key = key_of_report(report)
        one = self._known.get(key.job, {}).get(key)
        if isinstance(one, Worker) and report.state is WorkerState.ENDED:
            self._parts.on_over(one)

    def forget(self, workers: list[Worker]) -> None:
        """Keep only tombstones of workers that are over, shipped and cleaned."""
        for one in workers:
            self._know(one.key, _BURIED)
        gone = self._parts.tombstones.keep([one.report() for one in workers])
        for key in gone:
            here = self._known.get(key.job, {})
            if here.get(key) is _BURIED:
                del here[key]
            if not here:
                self._known.pop(key.job, None)
                self._fences.pop(key.job, None)

    def on_lease(self, stands: bool) -> None:
        """Hear whether the lease stands; nothing that ends with it is started while it does not."""
        if stands == self.lease_stands:
            return
        self.lease_stands = stands
        self.reconcile_soon()
        if stands:
            # Meanwhile the node may have been fenced, and what still runs here given up.
            self.say_whole()

    def say_whole(self) -> None:
        """Say everything again, tombstones too: whoever listens may have forgotten it."""
        alive = [one.report() for one in self.workers() if one.phase is not Phase.STARTING]
        self._outbox.say_whole([*alive, *self._parts.tombstones.reports()])

    def has_stop_workers(self) -> bool:
        """Say whether workers that end with the lease still live; their sitters end them."""
        return any(
            one.stop and one.phase in (Phase.STARTING, Phase.RUNNING) for one in self.workers()
        )

    def close(self) -> None:
        """Let go; workers go on."""
        if self._again:
            self._again.cancel()
        for one in self.workers():
            if one.grace:
                one.grace.cancel()
        os.close(self._seen)
