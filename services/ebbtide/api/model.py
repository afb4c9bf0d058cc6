"""The api's private picture: every job that is alive as people see it, nodes and tokens.

A pure fold: it reads no clock and does no I/O, and it never decides anything. It is as large as
what is alive: a job that is final and holds nothing is let go after its last state was kept in
the views.
"""

import datetime as dt
from typing import TypeVar, assert_never, get_args

import msgspec

from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.events import (
    AttemptEnded,
    AttemptRunning,
    AttemptStopRequested,
    CheckpointCommitted,
    GangPlaced,
    GangReleased,
    JobFailed,
    JobPlaced,
    JobQueued,
    JobRejected,
    JobRestarting,
    JobStopped,
    JobStopRequested,
    JobSubmitted,
    JobSucceeded,
    TokenCreated,
    TokenKind,
    TokenRevoked,
)
from ebbtide.contracts.events.job import JobEvent
from ebbtide.contracts.events.node import NodeEvent
from ebbtide.contracts.http import FINAL_PHASES, Phase
from ebbtide.contracts.ids import JobId, NodeNumber, QuotaName, TokenId, Workspace
from ebbtide.contracts.job_spec import JobSpec, workers_of
from ebbtide.contracts.outcomes import KeepAll, how_ended
from ebbtide.model import node as nodes
from ebbtide.model.node import Node
from ebbtide.model.resources import gpu_model, gpu_need

STORY_MAX = 2048
"""Positions of pool events kept per job: two for each of 1,000 restarts, and some."""

_JOB: frozenset[type] = frozenset(get_args(JobEvent))
_NODE: frozenset[type] = frozenset(get_args(NodeEvent))
Name = TypeVar("Name", bound=str)
_CHANGE = msgspec.structs.replace


class Held(msgspec.Struct, frozen=True, array_like=True):
    """What one placement holds: per worker, in rank order, its node."""

    placement: str
    nodes: tuple[NodeNumber, ...]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A job as of ``position``, without its specification, which never changes.

    ``version`` is that of the job's stream. ``places`` are the nodes of the newest placement by
    worker; ``held`` is every placement that still counts, so that free capacity can be told.
    ``story`` are the positions of the pool's events that speak of the job. ``log_bytes`` belongs
    to ``ended_attempt``.
    """

    id: JobId
    name: str
    workspace: Workspace
    actor: str
    quota: QuotaName
    priority: int
    workers: int
    submitted: int
    submitted_at: dt.datetime
    position: int
    version: int = 1
    phase: Phase = "submitted"
    attempt: int = 0
    restarts: int = 0
    places: tuple[NodeNumber, ...] = ()
    names: tuple[str, ...] = ()
    held: tuple[Held, ...] = ()
    charge: str = ""
    why: str = ""
    code: str = ""
    newest_step: int | None = None
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    ended_attempt: int = 0
    log_bytes: tuple[int, ...] = ()
    story: tuple[int, ...] = ()

    @property
    def is_final(self) -> bool:
        """Say whether the job has ended for good."""
        return self.phase in FINAL_PHASES

    @property
    def is_alive(self) -> bool:
        """Say whether anything can still happen to the row."""
        return not self.is_final or bool(self.held)


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A credential as the log knows it: never its secret."""

    id: TokenId
    kind: TokenKind
    subject: str
    secret_sha256: str
    created_at: dt.datetime
    revoked_at: dt.datetime | None = None


class Alive(msgspec.Struct, kw_only=True):
    """A job in memory: its row and its specification."""

    row: Row
    spec: JobSpec


def begin(recorded: Recorded, event: JobSubmitted) -> Row:
    """Begin the row of a job."""
    spec = event.spec
    return Row(
        id=event.job,
        name=spec.name,
        workspace=event.workspace,
        actor=recorded.actor,
        quota=spec.quota,
        priority=spec.priority,
        workers=sum(role.replicas for role in spec.roles.values()),
        submitted=recorded.position,
        submitted_at=recorded.at,
        position=recorded.position,
    )


def evolve(row: Row, recorded: Recorded, event: JobEvent) -> Row:
    """Fold one event of the job's stream after the first; a final row changes no more."""
    if row.is_final:
        return row
    row = _CHANGE(row, position=recorded.position, version=recorded.version)
    match event:
        case JobSubmitted():
            return row
        case JobQueued():
            return _CHANGE(row, phase=_unless_stopping(row, "queued"), quota=event.quota)
        case JobPlaced():
            phase = _unless_stopping(row, "placed")
            return _CHANGE(row, phase=phase, attempt=event.attempt, charge=event.charge, why="")
        case JobStopRequested():
            return _CHANGE(row, phase="stopping", why=event.reason)
        case AttemptRunning():
            started = row.started_at or recorded.at
            return _CHANGE(row, phase=_unless_stopping(row, "running"), started_at=started)
        case AttemptStopRequested() | AttemptEnded():
            return _ending(row, event)
        case JobRestarting():
            return _restart(row, event)
        case JobSucceeded() | JobStopped() | JobRejected() | JobFailed():
            return _end(_CHANGE(row, ended_at=recorded.at), event)
        case _:
            assert_never(event)


def _unless_stopping(row: Row, phase: Phase) -> Phase:
    """Somebody who asked for an end wants to see that it is under way, whatever else happens."""
    return "stopping" if row.phase == "stopping" else phase


def _end(row: Row, event: JobSucceeded | JobStopped | JobRejected | JobFailed) -> Row:
    match event:
        case JobSucceeded():
            return _CHANGE(row, phase="succeeded", why="")
        case JobStopped():
            return _CHANGE(row, phase="stopped")
        case JobRejected():
            why = f"{event.detail}; {event.hint}" if event.hint else event.detail
            return _CHANGE(row, phase="rejected", code=event.code, why=why)
        case JobFailed():
            return _CHANGE(row, phase="failed", code=event.code, why=event.detail)
        case _:
            assert_never(event)


def _ending(row: Row, event: AttemptStopRequested | AttemptEnded) -> Row:
    if isinstance(event, AttemptStopRequested):
        culprit = "" if event.worker is None else f" (worker {event.worker})"
        why = row.why if row.phase == "stopping" else event.reason.replace("_", " ") + culprit
        return _CHANGE(row, why=why)
    why = row.why
    if event.first is not None:
        first = event.first
        how = how_ended(first.cause, first.status, first.detail)
        why = f"worker {first.worker} on {first.node} {how}"
    return _CHANGE(row, why=why, ended_attempt=event.attempt, log_bytes=event.log_bytes)


def _restart(row: Row, event: JobRestarting) -> Row:
    """Go on: on the held places at once, else back to waiting with the last attempt shown."""
    row = _CHANGE(
        row,
        phase=_unless_stopping(row, "restarting"),
        restarts=row.restarts + event.counted,
        why=event.why or row.why,
    )
    if isinstance(event.keep, KeepAll) and row.held:
        return _CHANGE(row, attempt=event.attempt)
    return _CHANGE(row, charge="", names=())


def hold(row: Row, recorded: Recorded, event: GangPlaced | GangReleased, names: list[str]) -> Row:
    """Fold a pool event that speaks of the job; ``names`` are its nodes', each once."""
    story = (*row.story, recorded.position)[-STORY_MAX:]
    row = _CHANGE(row, position=recorded.position, story=story)
    match event:
        case GangPlaced():
            places = tuple(place.node for place in event.places)
            held = (*row.held, Held(event.placement, places))
            return _CHANGE(row, places=places, names=tuple(names), held=held)
        case GangReleased():
            held = tuple(one for one in row.held if one.placement != event.placement)
            return _CHANGE(row, held=held)
        case _:
            assert_never(event)


class Picture(msgspec.Struct, kw_only=True):
    """Everything alive, and how many jobs of each workspace are in each phase, ended ones included.

    It mutates inside :meth:`apply` for speed, still without any I/O. ``used`` is by node what
    placements hold there, ``there`` how many workers of which jobs have their places there.
    """

    jobs: dict[JobId, Alive] = {}
    nodes: dict[NodeNumber, Node] = {}
    tokens: dict[TokenId, Token] = {}
    used: dict[NodeNumber, dict[str, int]] = {}
    there: dict[NodeNumber, dict[JobId, int]] = {}
    counts: dict[Workspace, dict[Phase, int]] = {}

    def apply(self, recorded: Recorded) -> Alive | Node | Token | None:
        """Fold one event; give what it changed, as it is now."""
        event = recorded.body
        kind = type(event)
        if kind in _JOB:
            return self._job(recorded, event)  # type: ignore[arg-type]  # narrowed by the set
        if kind in _NODE:
            node = nodes.evolve(self.nodes.get(event.node), recorded, event)  # type: ignore[union-attr, arg-type]  # narrowed by the set
            self.nodes[node.number] = node
            return node
        if isinstance(event, GangPlaced | GangReleased):
            return self._pool(recorded, event)
        if isinstance(event, TokenCreated | TokenRevoked):
            return self._token(recorded, event)
        if isinstance(event, CheckpointCommitted):
            return self._checkpoint(recorded, event)
        return None

    def _job(self, recorded: Recorded, event: JobEvent) -> Alive | None:
        if isinstance(event, JobSubmitted):
            self._count(event.workspace, "submitted", 1)
            return self._keep(Alive(row=begin(recorded, event), spec=event.spec))
        alive = self.jobs.get(event.job)
        if alive is None:
            return None
        before = alive.row.phase
        row = evolve(alive.row, recorded, event)
        if row.phase != before:
            self._count(row.workspace, before, -1)
            self._count(row.workspace, row.phase, 1)
        return self._keep(Alive(row=row, spec=alive.spec))

    def _pool(self, recorded: Recorded, event: GangPlaced | GangReleased) -> Alive | None:
        alive = self.jobs.get(event.job)
        if alive is None:
            return None
        numbers = (
            dict.fromkeys(p.node for p in event.places) if isinstance(event, GangPlaced) else ()
        )
        names = [
            self.nodes[number].name if number in self.nodes else str(number) for number in numbers
        ]
        row = hold(alive.row, recorded, event, list(names))
        for held in set(row.held) ^ set(alive.row.held):
            self._charge(alive, held, 1 if held in row.held else -1)
        return self._keep(Alive(row=row, spec=alive.spec))

    def _checkpoint(self, recorded: Recorded, event: CheckpointCommitted) -> Alive | None:
        alive = self.jobs.get(event.job)
        if alive is None or alive.row.is_final:
            return None
        step = max(event.step, alive.row.newest_step or 0)
        row = _CHANGE(alive.row, newest_step=step, position=recorded.position)
        return self._keep(Alive(row=row, spec=alive.spec))

    def _token(self, recorded: Recorded, event: TokenCreated | TokenRevoked) -> Token | None:
        if isinstance(event, TokenCreated):
            token = Token(
                id=event.token,
                kind=event.kind,
                subject=event.subject,
                secret_sha256=event.secret_sha256,
                created_at=recorded.at,
            )
        elif event.token in self.tokens:
            token = _CHANGE(self.tokens[event.token], revoked_at=recorded.at)
        else:
            return None
        self.tokens[token.id] = token
        return token

    def _keep(self, alive: Alive) -> Alive:
        if alive.row.is_alive:
            self.jobs[alive.row.id] = alive
        else:
            self.jobs.pop(alive.row.id, None)
        return alive

    def _count(self, workspace: Workspace, phase: Phase, change: int) -> None:
        counts = self.counts.setdefault(workspace, {})
        counts[phase] = counts.get(phase, 0) + change
        if counts[phase] == 0:
            del counts[phase]

    def recharge(self) -> None:
        """Work out what placements hold on nodes from the jobs: after a start from the views."""
        self.used, self.there = {}, {}
        for alive in self.jobs.values():
            for held in alive.row.held:
                self._charge(alive, held, 1)

    def _charge(self, alive: Alive, held: Held, sign: int) -> None:
        """Add what a placement holds to its nodes, or take it away again."""
        for number in held.nodes:
            _add(self.there.setdefault(number, {}), alive.row.id, sign)
            if not self.there[number]:
                del self.there[number]
        spec = alive.spec
        for (role, _), number in zip(workers_of(spec), held.nodes, strict=False):
            need = spec.roles[role].resources
            used = self.used.setdefault(number, {})
            gpu, _ = gpu_need(need)
            model = gpu_model(self.nodes[number].capacity) if number in self.nodes else ""
            for name, amount in need.items():
                _add(used, model if name == gpu and model else name, sign * amount)
            if not used:
                del self.used[number]

    def free(self, node: Node) -> dict[str, int]:
        """Give what of a node's capacity no placement holds."""
        used = self.used.get(node.number, {})
        return {name: amount - used.get(name, 0) for name, amount in node.capacity.items()}


def _add(amounts: dict[Name, int], name: Name, amount: int) -> None:
    """Add to an amount; what comes to nothing is forgotten, so that equal use looks equal."""
    amounts[name] = amounts.get(name, 0) + amount
    if amounts[name] == 0:
        del amounts[name]
