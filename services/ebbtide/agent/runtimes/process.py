"""Workers as plain processes, each beside a sitter of the node's keeper.

The agent is parent of none of them, so it may be killed and started again at any time: it adopts
what the records in ``lives`` tell. An end is known by the sitter's word or, for an adopted worker,
by the sitter's exit; the truth is the record in both cases.
"""

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import msgspec

from ebbtide.agent import cgroups
from ebbtide.agent.code_store import CodeStore
from ebbtide.agent.lives import Lives
from ebbtide.agent.model import Ending, Life, Note, WorkerKey, parse_end
from ebbtide.agent.runtimes import Heard, Plan, Signal
from ebbtide.agent.runtimes.plans import password
from ebbtide.agent.runtimes.sitters import Sitter, Sitters, send
from ebbtide.agent.runtimes.slots import is_as_laid_out, log_size, wipe
from ebbtide.agent.runtimes.sweep import sweep
from ebbtide.contracts.errors import EbbtideError, InvariantBroken
from ebbtide.contracts.outcomes import EndCause

KEEPER_RETRY_S = 0.1
"""How soon to look again for a keeper that is away: whoever watches it starts it again at once."""
SWEEP_S = 0.05
LOOK_AGAIN_S = 0.05
STARTS_MAX = 3
"""How often a start is ordered again when its sitter died before it took charge."""
_NUMBERS = {Signal.TERMINATE: signal.SIGTERM, Signal.KILL: signal.SIGUSR1}


class Run:
    """A worker that was ordered to start or was adopted."""

    def __init__(self, slot: int, key: WorkerKey, plan: Plan | None = None) -> None:
        self.slot = slot
        self.key = key
        self.plan = plan
        self.frame = b""
        self.limits = cgroups.Limits()
        self.sitter: Sitter | None = None
        self.pidfd = -1
        self.runs = False
        self.started = (0, 0)
        self.starts = 0
        self.wanted: Signal | None = None


def frame(plan: Plan, slot: int, folder: str, lease: str) -> bytes:
    """Write a start order as ``sitter.Plan`` reads it."""
    lease = lease if plan.note.stop else ""
    fields = [
        str(plan.key), str(slot), f"{folder}/work", f"{folder}/log", lease,
        str(len(plan.args)), *plan.args,
    ]  # fmt: skip
    fields.extend(f"{name}={value}" for name, value in plan.env.items())
    return "\0".join(fields).encode()


class Processes:
    """The process runtime of one node."""

    def __init__(
        self,
        state: Path,
        lives: Lives,
        groups: cgroups.Groups,
        code: CodeStore,
        secret: bytes,
    ) -> None:
        self._workers = state / "workers"
        self._lease = str(state / "lease")
        self._lives = lives
        self._groups = groups
        self._code = code
        self._secret = secret
        self._heard = Heard(lambda *_: None, lambda _: None)
        self._sitters = Sitters(state, groups, self._hear)
        self._runs: dict[str, Run] = {}
        self._waiting: list[Run] = []
        self._retry: asyncio.TimerHandle | None = None
        self._folders: set[int] = set()
        self._paths: dict[int, Path] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def folder(self, slot: int) -> Path:
        """Name a slot's folder, which holds its log and its working directory."""
        found = self._paths.get(slot)
        if found is None:
            found = self._paths[slot] = self._workers / f"{slot:04d}"
        return found

    def observe(self, heard: Heard) -> list[Life]:
        """Adopt what a former agent left: runs go on, and an end is noticed by the sitter's exit.

        What was planned and taken charge of by nobody is forgotten: a sitter that comes too late
        finds another record there, or none, and desired state starts the worker anew.
        """
        self._heard = heard
        found: list[Life] = []
        for life in self._lives.found():
            if life.end is None and not life.sitter:
                if self._lives.bury(life.slot, EndCause.NOT_STARTED, time.time_ns(), ""):
                    self._lives.free(life.slot)
                    continue
                life = self._lives.read(life.slot) or life  # noqa: PLW2901
            found.append(life)
            if life.end is None:
                self._adopt(life)
        self._sitters.spare()
        return found

    def _adopt(self, life: Life) -> None:
        run = self._runs[str(life.key)] = Run(life.slot, life.key)
        self._sitters.reserve((life.group,))
        loop = asyncio.get_running_loop()
        sitter = self._lives.holder(life.slot)
        with contextlib.suppress(ProcessLookupError):
            run.pidfd = os.pidfd_open(sitter) if sitter else -1
        # Opened first, asked again: while it holds the lock, this number is the sitter's and no
        # other's.
        if run.pidfd >= 0 and self._lives.holder(life.slot) == sitter:
            loop.add_reader(run.pidfd, self._exited, run)
            self._await_start(run)
        else:
            loop.call_soon(self._exited, run)

    def _await_start(self, run: Run) -> None:
        """Look until an adopted worker was executed: its sitter tells another agent, long gone."""
        life = self._lives.read(run.slot)
        if self._runs.get(str(run.key)) is not run or life is None or life.end is not None:
            return
        if not life.pid:
            asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._await_start, run)
            return
        run.runs = True
        self._heard.running(run.key, life.pid, life.started_ns)
        if run.wanted:
            self.signal(run.key, run.wanted)

    def start(self, plan: Plan) -> Life:
        """Write the worker down, lay out its working directory and order its start."""
        slot = self._lives.take()
        self._lives.plan(plan.key, plan.note, slot)
        run = self._runs[str(plan.key)] = Run(slot, plan.key, plan)
        if plan.code or slot not in self._folders:
            task = asyncio.get_running_loop().create_task(self._lay_out_and_order(run, plan))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._ready(run, plan)
        return Life(slot=slot, key=plan.key, note=plan.note)

    def bury(self, key: WorkerKey, note: Note, detail: str) -> Life:
        """Write down, synced, that a worker never started and never will."""
        slot = self._lives.take()
        self._lives.plan(key, note, slot)
        self._lives.bury(slot, EndCause.NOT_STARTED, time.time_ns(), detail)
        life = self._lives.read(slot)
        if life is None or life.end is None:
            raise InvariantBroken(f"the tombstone of {key} does not read as one")
        return life

    async def _lay_out_and_order(self, run: Run, plan: Plan) -> None:
        try:
            await asyncio.to_thread(self._lay_out, self.folder(run.slot), plan.code)
            self._folders.add(run.slot)
        except (OSError, EbbtideError) as error:
            self._failed(run, str(error))
            return
        if self._runs.get(str(run.key)) is run:
            self._ready(run, plan)

    def _lay_out(self, folder: Path, code: str) -> None:
        wipe(folder)
        (folder / "work").mkdir(parents=True, mode=0o700)
        if code:
            self._code.lay_out(code, folder / "work")

    def _ready(self, run: Run, plan: Plan) -> None:
        run.frame = frame(plan, run.slot, str(self.folder(run.slot)), self._lease)
        run.limits = cgroups.Limits(plan.cpu_milli, plan.memory_mib)
        self._order(run)

    def _order(self, run: Run) -> None:
        sitter = self._sitters.take(run.limits)
        if sitter is None or not sitter.send(run.frame):
            self._waiting.append(run)
            if self._retry is None:
                loop = asyncio.get_running_loop()
                self._retry = loop.call_later(KEEPER_RETRY_S, self._order_again)
            return
        run.starts += 1
        run.sitter, sitter.serves = sitter, str(run.key)
        self._sitters.spare()

    def _order_again(self) -> None:
        self._retry = None
        waiting, self._waiting = self._waiting, []
        for run in waiting:
            if str(run.key) in self._runs:
                self._order(run)

    def _hear(self, sitter: Sitter, word: str, rest: str) -> None:
        key = sitter.serves
        run = self._runs.get(key)
        if word == "hello" or (word == "gone" and run is None):
            return
        if run is None:
            if word != "run":
                self._sitters.give_back(sitter)
        elif word == "run":
            run.runs = True
            _, pid, started_ns = rest.removeprefix(key).split()
            run.started = (int(pid), int(started_ns))
            self._heard.running(run.key, *run.started)
            if run.wanted:
                self.signal(run.key, run.wanted)
        elif word == "gone":
            self._exited(run)
        else:
            self._sitters.give_back(sitter)
            run.sitter = None
            said = rest.removeprefix(key).strip()
            if word == "fail":
                self._failed(run, said)
            elif word == "end" and run.plan:
                self._ended(run, self._told(run, run.plan.note, said))
            else:
                self._look(run)

    def _told(self, run: Run, note: Note, line: str) -> Life:
        """Make of a sitter's last word what its record holds, without reading that."""
        pid, started_ns = run.started
        return Life(
            slot=run.slot,
            key=run.key,
            note=note,
            pid=pid,
            started_ns=started_ns,
            end=parse_end(line.split(" ")),
        )

    def _look(self, run: Run) -> None:
        """Believe the record: its end, or another sitter that serves it, or nobody at all."""
        life = self._lives.read(run.slot)
        if life is not None and life.end is not None:
            self._ended(run, life)
        elif life is not None and self._lives.holder(run.slot):
            self._adopt(life)
        else:
            self._exited(run)

    def _exited(self, run: Run) -> None:
        """The sitter is gone: the record has the end, or nothing ran yet, or nobody saw the end."""
        self._forget_pidfd(run)
        dead, run.sitter = run.sitter, None
        life = self._lives.read(run.slot)
        if dead is not None and (life is None or not life.sitter):
            self._sitters.release(dead.group)
        if life is None:
            self._runs.pop(str(run.key), None)
        elif life.end is not None:
            self._ended(run, life)
        elif not life.sitter and run.frame and run.starts < STARTS_MAX:
            self._order(run)
        elif not life.sitter:
            self._failed(run, "its sitter died before it could start")
        else:
            task = asyncio.get_running_loop().create_task(self._sweep(run, life))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _sweep(self, run: Run, life: Life) -> None:
        """End what a dead sitter left behind, then call its worker lost."""
        mark = f"EBB_KEY={password(self._secret, run.key)}".encode()
        group = self._groups.known(life.group)
        # Other processes' ends are nobody's event.
        while await asyncio.to_thread(sweep, mark, cgroups.members(group)):  # noqa: ASYNC110
            await asyncio.sleep(SWEEP_S)
        size = log_size(self.folder(run.slot))
        at = time.time_ns()
        why = "nobody saw its end: its sitter died"
        end = Ending(cause=EndCause.LOST, status=None, at_ns=at, log_bytes=size, detail=why)
        self._ended(run, msgspec.structs.replace(life, end=end))

    def _failed(self, run: Run, why: str) -> None:
        if self._lives.bury(run.slot, EndCause.START_FAILED, time.time_ns(), why):
            life = self._lives.read(run.slot)
            if life is not None:
                self._ended(run, life)
        else:
            self._look(run)

    def _ended(self, run: Run, life: Life) -> None:
        self._forget_pidfd(run)
        self._runs.pop(str(run.key), None)
        self._sitters.release(life.group)
        end = life.end
        died = end is not None and end.cause in (EndCause.EXITED, EndCause.SIGNALLED)
        if end is not None and died and end.kills and end.status:
            oom = msgspec.structs.replace(end, cause=EndCause.OOM)
            life = msgspec.structs.replace(life, end=oom)
        self._heard.ended(life)

    def _forget_pidfd(self, run: Run) -> None:
        if run.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(run.pidfd)
            os.close(run.pidfd)
            run.pidfd = -1

    def signal(self, key: WorkerKey, wanted: Signal) -> None:
        """Signal a worker's sitter, which passes it on; what did not start yet is buried instead.

        Between the two, when its sitter has taken charge but not yet started it, the signal waits.
        """
        run = self._runs.get(str(key))
        if run is None:
            return
        at = time.time_ns()
        if wanted is Signal.TERMINATE:
            self._lives.note_order(run.slot, at)
        if run.runs:
            for number in (_NUMBERS[wanted], signal.SIGCONT):  # a worker may have frozen its sitter
                if run.sitter is not None:
                    run.sitter.signal(number)
                else:
                    send(run.pidfd, number)
            return
        run.wanted = wanted
        if run.plan and self._lives.bury(run.slot, EndCause.NOT_STARTED, at, "ended first"):
            self._look(run)
        elif run.sitter is not None:
            run.sitter.signal(signal.SIGCONT)  # a worker may have frozen it before it could say so

    def clean(self, slot: int) -> None:
        """Empty the slot's folder if its worker left anything; most leave nothing.

        Raises:
            OSError: it cannot be emptied, so the slot is nobody's any more.
        """
        folder = self.folder(slot)
        if slot in self._folders and is_as_laid_out(folder):
            return
        self._folders.discard(slot)
        wipe(folder)

    def free(self, slot: int) -> None:
        """Give a cleaned slot to the next worker."""
        self._lives.free(slot)

    def close(self) -> None:
        """Let go of the sitters; workers go on."""
        if self._retry:
            self._retry.cancel()
        for run in self._runs.values():
            self._forget_pidfd(run)
        for task in self._tasks:
            task.cancel()
        self._sitters.close()
        self._groups.close()
