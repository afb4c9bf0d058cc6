"""A node's machine: its disk, its workers, the sitters that mind them. Agents come and go on it.

It is a runtime for the real supervisor, with workers that live as long as the seed says. Workers
outlive their agent, and end by the lease in the machine's own file, whatever the agent does. It
watches that no worker of one job and rank ever lives twice.
"""

import contextvars
import random
from collections.abc import Callable

import msgspec

from ebbtide.agent.model import Ending, Life, Note, WorkerKey
from ebbtide.agent.reports import key_of_report
from ebbtide.agent.runtimes import Heard, Plan, Signal
from ebbtide.contracts.agents import CheckpointReport, WorkerReport
from ebbtide.contracts.errors import Unavailable
from ebbtide.contracts.ids import JobId
from ebbtide.contracts.outcomes import EndCause
from ebbtide.testing.builders import START
from ebbtide.testing.checks import PromiseBroken
from ebbtide.testing.sim.ground import Ground

START_S, KILL_S, TICK_S = 0.05, 0.02, 1.0
"""Longest times to execute a worker, to kill it, and until a sitter looks at the lease again."""
MOMENT_S = 1e-6
"""A timer of floats may come this much early."""
TERM, KILL = 15, 9
EXITS = (0, 0, 0, 0, 256, KILL, 127 << 8)
"""Raw wait statuses that workers end with; of a gang the first drawn one counts for all."""
LONG_NAME, LONG_S = "long", 40.0
LIVES_S = (0.5, 2.0, 3.0, 8.0, 30.0)
"""A worker lives at most so long; few live long, so that most worlds have room and come to rest."""
SAVE_EVERY_S = 6.0


class Disk(msgspec.Struct):
    """What an agent finds again after its restart. ``number`` tells one disk from its successor."""

    number: int
    lives: dict[WorkerKey, Life] = {}
    final: dict[WorkerKey, WorkerReport] = {}
    unsaid: list[CheckpointReport] = []


class Hands:
    """What one life of an agent has of its machine: runtime, ports and the lease file.

    A killed agent has no hands: whatever it would still do is not done.
    """

    def __init__(self, machine: "Machine") -> None:
        self._machine: Machine | None = machine

    def drop(self) -> None:
        """Be killed."""
        if self._machine is not None:
            self._machine.heard = None
        self._machine = None

    @property
    def _held(self) -> "Machine":
        if self._machine is None:
            raise Unavailable("this agent was killed")
        return self._machine

    def observe(self, heard: Heard) -> list[Life]:
        """Adopt what a former agent left."""
        self._held.heard, self._held.context = heard, contextvars.copy_context()
        return list(self._held.disk.lives.values())

    def start(self, plan: Plan) -> Life:
        """Start a worker."""
        return self._held.start(plan)

    def bury(self, key: WorkerKey, note: Note, detail: str) -> Life:
        """Write down that a worker never starts."""
        return self._held.bury(key, note, detail)

    def signal(self, key: WorkerKey, wanted: Signal) -> None:
        """Signal a worker."""
        if self._machine is not None:
            self._machine.signal(key, wanted)

    def clean(self, slot: int) -> None:
        """Have no folders to clean."""

    def free(self, slot: int) -> None:
        """Have slots without end."""

    def take(self) -> int:
        """Hold the next port."""
        self._held.port += 1
        return self._held.port

    def claim(self, port: int) -> None:
        """Hold nothing: no two of these ports are equal."""

    def reserve(self, port: int) -> None:
        """Hold nothing."""

    def let_bind(self, port: int) -> None:
        """Hold nothing."""

    def release(self, port: int) -> None:
        """Hold nothing."""

    def write(self, at_s: float) -> None:
        """Set the lease's deadline."""
        if self._machine is not None:
            self._machine.set_deadline(at_s)

    def read(self) -> float:
        """Give the lease's deadline."""
        return self._machine.deadline_s if self._machine is not None else 0.0

    def bury_for_good(self, report: WorkerReport) -> None:
        """Keep a tombstone on disk, and give the slot up."""
        if self._machine is not None:
            key = key_of_report(report)
            self._machine.disk.final[key] = report
            self._machine.disk.lives.pop(key, None)


class Machine:
    """One node: its disk, its power, and its workers with their sitters."""

    def __init__(self, name: str, ground: Ground) -> None:
        self.name = name
        self.ground = ground
        self.alive = True
        self.boots = 1
        self.disk = Disk(1)
        self.deadline_s = 0.0
        self.on_saved: Callable[[], None] = lambda: None
        self.heard: Heard | None = None
        self.context = ground.outside
        self.port = 20_000
        self._slots = 0
        self._living: dict[WorkerKey, None] = {}  # in order: a set's is not the seed's

    def start(self, plan: Plan) -> Life:
        """Start a worker: its sitter is ordered now, and executes it a little later."""
        self._slots += 1
        life = Life(slot=self._slots, key=plan.key, note=plan.note)
        self.disk.lives[plan.key] = life
        self._later(self._draw(START_S), self._execute, plan.key, plan.env)
        return life

    def bury(self, key: WorkerKey, note: Note, detail: str) -> Life:
        """Write down that a worker never starts."""
        self._slots += 1
        slot = self.disk.lives[key].slot if key in self.disk.lives else self._slots
        end = Ending(cause=EndCause.NOT_STARTED, status=None, at_ns=self._ns(), detail=detail)
        life = Life(slot=slot, key=key, note=note, ordered=True, end=end)
        self.disk.lives[key] = life
        return life

    def signal(self, key: WorkerKey, wanted: Signal) -> None:
        """Signal a worker; some end well on being asked, some not at all."""
        life = self.disk.lives.get(key)
        if life is None or life.end is not None:
            return
        self._write(key, ordered=True)
        if wanted is Signal.KILL:
            self._later(self._draw(KILL_S), self._end, key, EndCause.SIGNALLED, KILL)
        else:
            status = self.ground.dice.choice((TERM, TERM, TERM, TERM, 0, None))
            if status is not None:
                cause = EndCause.SIGNALLED if status else EndCause.EXITED
                self._later(self._draw(1.0), self._end, key, cause, status)

    def set_deadline(self, at_s: float) -> None:
        """Write the lease file; sitters look again when it comes, or at their next tick."""
        self.deadline_s = at_s
        left_s = at_s - self.ground.loop.time()
        self._later(left_s if left_s > 0 else self._draw(TICK_S), self._mind_lease)

    def _mind_lease(self) -> None:
        if self.ground.loop.time() >= self.deadline_s - MOMENT_S:
            for key in list(self._living):
                if self.disk.lives[key].note.stop:
                    self._end(key, EndCause.LEASE, KILL)

    def lose_power(self) -> None:
        """Stop: nothing runs here any more, and nobody writes down how it ended."""
        self.alive = False
        self.boots += 1
        self.deadline_s = 0.0
        for key in list(self._living):
            self._gone(key)

    def come_back(self, *, new_disk: bool) -> None:
        """Boot again, perhaps on an empty disk; what ran before was seen ending by nobody."""
        self.alive = True
        if new_disk:
            self.disk = Disk(self.disk.number + 1)
        for key, life in self.disk.lives.items():
            if life.end is None:
                self.disk.lives[key] = msgspec.structs.replace(
                    life, end=Ending(cause=EndCause.LOST, status=None, at_ns=self._ns())
                )

    @property
    def boot(self) -> str:
        """Name the machine's present life."""
        return f"boot-{self.boots}"

    def _execute(self, key: WorkerKey, env: dict[str, str]) -> None:
        """Run a worker, unless its attempt was ended before."""
        life = self.disk.lives.get(key)
        if life is None or life.end is not None:
            return
        if life.ordered:
            self._end(key, EndCause.NOT_STARTED, None)
            return
        if life.note.stop and self.ground.loop.time() >= self.deadline_s:
            self._end(key, EndCause.LEASE, KILL)  # its sitter looks first
            return
        try:
            self.ground.running.begin(key, self.name)
        except PromiseBroken as error:
            self.ground.fail(error)
        self._living[key] = None
        life = self._write(key, pid=life.slot, started_ns=self._ns())
        if self.heard is not None:
            self._call(self.heard.running, key, life.pid, life.started_ns)
        dice = random.Random(f"{self.ground.seed} {key}")  # noqa: S311  # repeatable on purpose
        status = random.Random(f"{self.ground.seed} {key.job} {key.attempt}").choice(EXITS)  # noqa: S311
        cause = EndCause.SIGNALLED if status & 0x7F else EndCause.EXITED
        life_s = dice.uniform(0.1, dice.choice(LIVES_S))
        if env["EBB_JOB_NAME"] == LONG_NAME:
            life_s = LONG_S
        self._later(life_s, self._end, key, cause, status)
        self._later(
            dice.uniform(1.0, SAVE_EVERY_S), self._save, key, int(env["EBB_RESUME_STEP"] or 0) + 1
        )

    def _save(self, key: WorkerKey, step: int) -> None:
        """Seal a checkpoint and leave the word of it on disk."""
        if key not in self._living or key.worker != 0:
            return
        self.disk.unsaid.append(
            CheckpointReport(
                job=JobId(key.job),
                epoch=key.epoch,
                attempt=key.attempt,
                round=key.round,
                worker=key.worker,
                step=step,
                folder=f"step-{step}.attempt-{key.attempt}",
                digest="",
                bytes=1,
            )
        )
        if self.heard is not None:
            self._call(self.on_saved)
        self._later(self._draw(SAVE_EVERY_S), self._save, key, step + 1)

    def _end(self, key: WorkerKey, cause: EndCause, status: int | None) -> None:
        life = self.disk.lives.get(key)
        if life is None or life.end is not None:
            return
        self._gone(key)
        end = Ending(cause=cause, status=status, at_ns=self._ns(), log_bytes=1)
        life = self._write(key, end=end)
        if self.heard is not None:
            self._call(self.heard.ended, life)

    def _gone(self, key: WorkerKey) -> None:
        self._living.pop(key, None)
        self.ground.running.end(key)

    def _write(self, key: WorkerKey, **said: object) -> Life:
        life = self.disk.lives[key] = msgspec.structs.replace(self.disk.lives[key], **said)
        return life

    def _later(self, delay_s: float, call: Callable[..., object], *args: object) -> None:
        """Have something happen on this machine, unless it is another life by then."""
        boots = self.boots

        def unless_rebooted() -> None:
            if boots == self.boots:
                call(*args)

        self.ground.later(delay_s, unless_rebooted)

    def _call(self, call: Callable[..., object], *args: object) -> None:
        self.ground.loop.call_soon(call, *args, context=self.context)

    def _draw(self, most_s: float) -> float:
        return self.ground.dice.random() * most_s

    def _ns(self) -> int:
        return int((START.timestamp() + self.ground.loop.time()) * 1e9)
