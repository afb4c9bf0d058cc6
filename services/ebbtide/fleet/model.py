"""Fleet's picture: the world, the workers of live attempts, and which node has which attempts.

What agents have said and the log does not hold yet is not in the picture: it is the inbox
(:mod:`ebbtide.fleet.inbox`), and a restarted fleet asks for it again.
"""

import msgspec

from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.events import (
    TokenCreated,
    TokenRevoked,
    WorkerEnded,
    WorkerStarted,
    job_of,
)
from ebbtide.contracts.ids import JobId, NodeName, NodeNumber, TokenId
from ebbtide.model.job import Job
from ebbtide.model.job_places import nodes_of
from ebbtide.model.node import Node
from ebbtide.model.world import World

ROUND = 1
"""Gangs are not elastic yet: every attempt has one round."""


class Workers(msgspec.Struct, kw_only=True):
    """The workers of one attempt: who has started, and how those that ended did."""

    attempt: int
    started: dict[int, None] = {}
    ended: dict[int, WorkerEnded] = {}


class Picture(msgspec.Struct, kw_only=True):
    """``on_node`` lists jobs whose live attempt has workers there; ``shaken`` jobs lost a node.

    ``touched`` are nodes whose desired state may have changed since the shell looked; ``eased``
    are those that merely have less to do: nobody there waits for the word. ``keys`` are the
    fingerprints of the tokens with which the agent of a node may come.
    """

    epoch: int = 0
    position: int = 0
    world: World = msgspec.field(default_factory=World)
    versions: dict[JobId, int] = {}
    workers: dict[JobId, Workers] = {}
    on_node: dict[NodeNumber, dict[JobId, None]] = {}
    shaken: dict[JobId, None] = {}
    delayed: dict[JobId, None] = {}
    touched: dict[NodeNumber, None] = {}
    eased: dict[NodeNumber, None] = {}
    keys: dict[NodeName, dict[TokenId, str]] = {}

    def apply(self, recorded: Recorded) -> None:
        """Fold one event."""
        self.epoch, self.position = recorded.epoch, recorded.position
        event = recorded.body
        if isinstance(event, WorkerStarted | WorkerEnded):
            self._worker(recorded, event)
            return
        if isinstance(event, TokenCreated | TokenRevoked):
            self._token(event)
            return
        job_id = job_of(event)
        before = self.world.jobs.get(job_id) if job_id is not None else None
        seen = self.world.apply(recorded)
        if isinstance(seen, Job):
            self._job(before, seen)
        elif isinstance(seen, Node):
            self._node(seen)

    def _token(self, event: TokenCreated | TokenRevoked) -> None:
        """Have a node's orders sealed anew when its agent has other tokens."""
        if isinstance(event, TokenCreated):
            if event.kind == "agent":
                self._keep(NodeName(event.subject), {event.token: event.secret_sha256}, None)
            return
        for name, keys in self.keys.items():
            if event.token in keys:
                self._keep(name, {}, event.token)
                return

    def _keep(self, name: NodeName, new: dict[TokenId, str], gone: TokenId | None) -> None:
        keys = {**self.keys.get(name, {}), **new}
        self.keys[name] = {token: key for token, key in keys.items() if token != gone}
        if (number := self.world.numbers.get(name)) is not None:
            self.touched[number] = None

    def _worker(self, recorded: Recorded, event: WorkerStarted | WorkerEnded) -> None:
        if event.job not in self.world.jobs:
            return
        self.versions[event.job] = recorded.version
        workers = self.workers.get(event.job)
        if workers is None or workers.attempt != event.attempt:
            return
        if isinstance(event, WorkerStarted):
            workers.started[event.worker] = None
        else:
            workers.ended[event.worker] = event

    def _job(self, before: Job | None, job: Job) -> None:
        began = before is None or (before.attempt, before.stage) != (job.attempt, job.stage)
        if job.is_live and began:
            self.workers[job.id] = Workers(attempt=job.attempt)
        if began or (before is not None and before.attempt_stop != job.attempt_stop):
            self._touch(job)
        if not job.is_live:
            self.shaken.pop(job.id, None)
            self.delayed.pop(job.id, None)
            if job.stage == "final":
                self._forget(job.id)
        elif job.not_before is not None:
            self.delayed[job.id] = None

    def _touch(self, job: Job) -> None:
        if job.placement is None:
            return
        for node in nodes_of(job.placement):
            jobs = self.on_node.setdefault(node, {})
            if job.is_live:
                self.touched[node] = None
                jobs[job.id] = None
            else:
                self.eased[node] = None
                jobs.pop(job.id, None)

    def _forget(self, job: JobId) -> None:
        self.workers.pop(job, None)
        self.versions.pop(job, None)

    def _node(self, node: Node) -> None:
        """Look again at every job on a node that was lost or fenced; have it written anew."""
        self.touched[node.number] = None
        if max(node.lost_at, node.fenced_at):
            self.shaken.update(self.on_node.get(node.number, {}))
