"""An agent without processes: it does what desired state says, and its workers end when told to.

It keeps the real agent's promises: tombstones before ends, newest state until settled, fences.
"""

from collections.abc import Callable

import msgspec

from ebbtide.contracts.agents import (
    Desired,
    DesiredAttempt,
    Lease,
    Registration,
    WorkerReport,
    WorkerState,
)
from ebbtide.contracts.ids import JobId
from ebbtide.contracts.outcomes import EndCause
from ebbtide.node_health.model import Seen, Sight
from ebbtide.testing.builders import VirtualClock

Key = tuple[int, JobId, int, int]
"""Epoch, job, attempt, worker."""
SIGTERM, SIGKILL = 15, 9
NOT_FOUND = 127 << 8
LEASE_S = 18.0


class SimulatedLease(msgspec.Struct):
    """A node's lease key: its revision, who holds it, and until when the agent may count on it."""

    revision: int = 0
    taken: bool = False
    until_s: float = LEASE_S


class SimulatedAgent:
    """One node's agent.

    ``lives`` says after how many seconds a worker exits, and with which status; ``refuses`` which
    attempts it cannot start.

    A status is a raw wait status: 0 is success, 256 is exit code 1, 9 is a kill.
    """

    def __init__(self, registration: Registration, clock: VirtualClock) -> None:
        self.registration = registration
        self.name = registration.node
        self.connected = True
        self.lease = SimulatedLease()
        self.lives: Callable[[DesiredAttempt, int], tuple[float, int] | None] = (
            lambda _attempt, _worker: None
        )
        self.refuses: Callable[[DesiredAttempt], bool] = lambda _: False
        self._clock = clock
        self._reports: dict[Key, WorkerReport] = {}
        self._settled: set[tuple[Key, WorkerState]] = set()
        self._ends: dict[Key, tuple[float, int]] = {}
        self._tombstones: set[tuple[int, JobId, int]] = set()
        self._stops: set[tuple[int, JobId, int]] = set()
        self._port = 20_000

    def reconcile(self, wanted: Desired) -> bool:
        """Do what is desired; say whether anything changed."""
        before = dict(self._reports)
        for attempt in wanted.attempts:
            if attempt.end is not None:
                self._end(attempt)
            else:
                self._run(attempt)
        self._let_time_do()
        return before != self._reports

    def renew(self, sight: Sight) -> bool:
        """Renew the lease if that is possible; say whether the agent can be reached.

        An agent whose lease ran out or was taken ends its ``stop`` workers before it takes it anew.
        """
        now_s = self._clock.monotonic_s()
        if now_s >= self.lease.until_s or (self.connected and self.lease.taken):
            self._cut_off()
        if not self.connected:
            self._let_time_do()
            return False
        if self.lease.taken:
            self.tell_again()
        if now_s - (self.lease.until_s - LEASE_S) >= LEASE_S / 3 or self.lease.taken:
            self.lease = SimulatedLease(revision=self.lease.revision + 2, until_s=now_s + LEASE_S)
        elif self.lease.revision == 0:
            self.lease.revision = 1
        holder = Lease(node=self.name, boot="", holder="sim", count=0, lease_ms=0)
        sight.see(self.name, Seen(revision=self.lease.revision, lease=holder, at_s=now_s))
        return True

    def tell_again(self) -> None:
        """Say everything again: whoever listened has forgotten it."""
        self._settled.clear()

    def unsettled(self) -> tuple[WorkerReport, ...]:
        """Give the newest states that no position has acknowledged."""
        return tuple(
            one for key, one in self._reports.items() if (key, one.state) not in self._settled
        )

    def settle(self, reports: tuple[WorkerReport, ...]) -> None:
        """Take note that the log holds these."""
        for one in reports:
            key = (one.epoch, one.job, one.attempt, one.worker)
            self._settled.add((key, one.state))

    def finish(self, job: JobId, status: int = 0, worker: int | None = None) -> None:
        """Have the running workers of a job (or one of them) exit now with a raw wait status."""
        for key, report in list(self._reports.items()):
            mine = key[1] == job and worker in (None, key[3])
            if mine and report.state is WorkerState.RUNNING:
                cause = EndCause.EXITED if status & 0x7F == 0 else EndCause.SIGNALLED
                self._ended(key, report, cause, status, ordered=False)

    def running(self) -> list[Key]:
        """Give the workers that run here now."""
        return [key for key, one in self._reports.items() if one.state is WorkerState.RUNNING]

    def _run(self, attempt: DesiredAttempt) -> None:
        if (attempt.epoch, attempt.job, attempt.attempt) in self._tombstones:
            return
        if attempt.when_cut_off == "stop":
            self._stops.add((attempt.epoch, attempt.job, attempt.attempt))
        for worker in attempt.workers:
            key = (attempt.epoch, attempt.job, attempt.attempt, worker.worker)
            report = self._reports.get(key)
            if report is None and attempt.world > 1:
                self._port += 1
                port = self._port if worker.worker == 0 else 0
                self._reports[key] = _report(attempt, worker.worker, port)
            elif (report is None or report.state is WorkerState.PREPARED) and (
                attempt.world == 1 or attempt.master
            ):
                started = report or _report(attempt, worker.worker, 0)
                if self.refuses(attempt):
                    self._ended(key, started, EndCause.START_FAILED, NOT_FOUND, ordered=False)
                    continue
                self._reports[key] = msgspec.structs.replace(
                    started, state=WorkerState.RUNNING, pid=1, started_at=self._clock.now()
                )
                life = self.lives(attempt, worker.worker)
                if life is not None:
                    self._ends[key] = (self._clock.monotonic_s() + life[0], life[1])

    def _end(self, attempt: DesiredAttempt) -> None:
        self._tombstones.add((attempt.epoch, attempt.job, attempt.attempt))
        for worker in attempt.workers:
            key = (attempt.epoch, attempt.job, attempt.attempt, worker.worker)
            self._reports.setdefault(key, _report(attempt, worker.worker, 0))
        for key, report in list(self._reports.items()):
            if key[:3] != (attempt.epoch, attempt.job, attempt.attempt):
                continue
            if report.state is WorkerState.PREPARED:
                self._ended(key, report, EndCause.NOT_STARTED, None, ordered=True)
            elif report.state is WorkerState.RUNNING:
                self._ended(key, report, EndCause.SIGNALLED, SIGTERM, ordered=True)

    def _cut_off(self) -> None:
        for key, report in list(self._reports.items()):
            if report.state is WorkerState.RUNNING and key[:3] in self._stops:
                self._ended(key, report, EndCause.LEASE, SIGKILL, ordered=False)

    def _let_time_do(self) -> None:
        now_s = self._clock.monotonic_s()
        for key, (at_s, status) in list(self._ends.items()):
            report = self._reports[key]
            if at_s <= now_s and report.state is WorkerState.RUNNING:
                cause = EndCause.EXITED if status & 0x7F == 0 else EndCause.SIGNALLED
                self._ended(key, report, cause, status, ordered=False)

    def _ended(
        self, key: Key, report: WorkerReport, cause: EndCause, status: int | None, *, ordered: bool
    ) -> None:
        self._ends.pop(key, None)
        self._tombstones.add(key[:3])
        self._reports[key] = msgspec.structs.replace(
            report,
            state=WorkerState.ENDED,
            cause=cause,
            status=status,
            ordered=ordered,
            ended_at=self._clock.now(),
        )


def _report(attempt: DesiredAttempt, worker: int, port: int) -> WorkerReport:
    return WorkerReport(
        job=attempt.job,
        epoch=attempt.epoch,
        attempt=attempt.attempt,
        round=attempt.round,
        worker=worker,
        state=WorkerState.PREPARED,
        port=port,
    )
