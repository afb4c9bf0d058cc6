"""What may be asked of the door, without HTTP: submit, look, wait, stop, tokens.

Writes go straight to the log, guarded by nothing but the version of one stream; reads come from the
projector. Everything here is safe to ask twice.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ebbtide.api import policy, tokens
from ebbtide.api.codes import CodeStore
from ebbtide.api.feed import Feed
from ebbtide.api.model import Alive, Picture, Token
from ebbtide.api.problems import refuse
from ebbtide.api.projector import Projector
from ebbtide.api.tokens import Principal
from ebbtide.chassis.bus import Bus
from ebbtide.chassis.clock import Clock, random_bytes
from ebbtide.contracts import subjects
from ebbtide.contracts.envelope import Position, Recorded, Unit
from ebbtide.contracts.errors import Malformed, NotFound, Rejected, StaleEpoch, Unavailable
from ebbtide.contracts.events import TokenKind
from ebbtide.contracts.http import (
    FINAL_PHASES,
    ChangeNode,
    CreateToken,
    StopAnswer,
    Submit,
    Submitted,
)
from ebbtide.contracts.ids import JobId, TokenId, Workspace, is_job_id, is_name
from ebbtide.contracts.job_spec import JobSpec, parse_job_spec
from ebbtide.contracts.waits import AskWhy, Why
from ebbtide.eventlog.log import Decided, Log, Source
from ebbtide.model import job as jobs
from ebbtide.model.node import Node

APPEND_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 5.0
FOLD_TIMEOUT_S = 1.0
STOP_TRIES = 16
"""A job's stream moves a few times a second at most, so a stop that loses this often is a fault."""
TRACE_BYTES = 16

Until = Literal["decided", "final"]


class Door(NamedTuple):
    """The door's parts, as every handler is given them."""

    cell: str
    log: Log
    source: Source
    bus: Bus
    clock: Clock
    projector: Projector
    feed: Feed
    codes: CodeStore
    store: Path
    random: Callable[[int], bytes] = random_bytes

    @property
    def picture(self) -> Picture:
        """Give what is alive, as of now."""
        return self.projector.picture

    async def append(self, unit: Unit) -> tuple[int, int] | None:
        """Say one unit; give the positions it got, or None if somebody else moved its stream.

        Raises:
            Unavailable: also when it is not known whether the unit stands; ask again with the
            same ids.
        """
        position = self.source.position
        try:
            return await self._append(unit, position)
        except StaleEpoch:
            return await self._append(unit, await self.log.head())

    async def _append(self, unit: Unit, read_to: Position) -> tuple[int, int] | None:
        decided = Decided(
            service="api", read_to=read_to, decided_at=self.clock.now(), units=(unit,)
        )
        try:
            async with asyncio.timeout(APPEND_TIMEOUT_S):
                return (await self.log.append(decided)).positions[0]
        except TimeoutError as error:
            raise Unavailable("the log does not answer") from error

    async def story(self, stream: str) -> list[Recorded]:
        """Read one stream whole, within a bound of time."""
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                return await self.log.read_stream(stream)
        except TimeoutError as error:
            raise Unavailable("the log does not answer") from error

    async def check(
        self, asked: Submit, principal: Principal, *, uploaded: bool = True
    ) -> tuple[Workspace, JobSpec]:
        """Look at a submission as closely as the door can: whose it is, its shape, its code.

        ``uploaded`` says whether its code has to be there by now.

        Raises:
            Malformed: names the field.
            Refusal: the submitter may not do this.
        """
        if not is_job_id(asked.id, self.cell):
            raise Malformed(
                Rejected(
                    code="job.id",
                    field="id",
                    detail=f"{asked.id[:80]!r} is not a job id of cell {self.cell!r}",
                    hint=f"write job_{self.cell}_ and a ULID of 26 characters",
                )
            )
        workspace = self._workspace(asked, principal)
        spec = parse_job_spec(asked.job)
        if spec.code and uploaded and not await self.codes.has(spec.code):
            raise Malformed(
                Rejected(
                    code="code.unknown",
                    field="code",
                    detail=f"no code with digest {spec.code} was uploaded",
                    hint=f"upload it first: PUT /v1/code/{spec.code}",
                )
            )
        return workspace, spec

    def _workspace(self, asked: Submit, principal: Principal) -> Workspace:
        if not principal.may_write:
            raise refuse(403, "auth.viewer", "a viewer may look, not submit", "use a member token")
        if principal.kind != "admin":
            if asked.workspace not in ("", principal.workspace):
                detail = f"this token submits into workspace {principal.workspace!r} only"
                raise refuse(403, "auth.workspace", detail, "leave workspace out", "workspace")
            return principal.workspace
        workspace = asked.workspace or policy.DEFAULT_WORKSPACE
        if not is_name(workspace):
            hint = "lower-case letters, digits and inner dashes, at most 63"
            detail = f"{workspace[:80]!r} cannot name a workspace"
            raise Malformed(Rejected(code="workspace", field="workspace", detail=detail, hint=hint))
        return workspace

    async def submit(self, asked: Submit, principal: Principal, trace: str) -> Submitted:
        """Record a job. The same id with the same job is one job; with another, a refusal."""
        workspace, spec = await self.check(asked, principal)
        unit = policy.submit(asked.id, workspace, spec, principal.actor, trace or self._trace())
        stood = await self.append(unit)
        if stood is not None:
            await self._folded(stood[0])
            return Submitted(id=asked.id, position=stood[0])
        story = await self.story(jobs.stream(asked.id))
        position, rejected = policy.submitted_before(story[0], workspace, spec)
        if rejected is not None:
            raise refuse(409, rejected.code, rejected.detail, rejected.hint, rejected.field)
        return Submitted(id=asked.id, position=position)

    async def _folded(self, position: int) -> None:
        """Let the submitter find the job at once; a reader far behind finds it a moment later."""
        if position > self.projector.position:
            try:
                await self.source.reached(position, FOLD_TIMEOUT_S)
            except Unavailable:
                return

    def _trace(self) -> str:
        return self.random(TRACE_BYTES).hex()

    async def job(self, job: JobId, principal: Principal) -> Alive:
        """Give a job that exists for ``principal``.

        Raises:
            NotFound: there is none, or it belongs to somebody else; nobody can tell which.
        """
        alive = self.projector.fresh(job)
        if alive is None and is_job_id(job, self.cell):
            alive = await self.projector.job(job)
        if alive is None or not principal.sees(alive.row.workspace):
            raise NotFound(f"there is no job {job[:80]!r}")
        return alive

    async def why(self, job: JobId, principal: Principal) -> Why:
        """Say what keeps a job from running; the scheduler knows who waits for his turn."""
        alive = await self.job(job, principal)
        if alive.row.phase == "submitted":
            return Why(code="admission", detail="its quota has not looked at it yet")
        if alive.row.phase not in FINAL_PHASES:
            body = msgspec.json.encode(AskWhy(job=job))
            subject = subjects.ask(self.cell, "scheduler", "why")
            answer = await self.bus.request(subject, body, READ_TIMEOUT_S)
            why = msgspec.json.decode(answer, type=Why | None)
            if why is not None:
                return why
            alive = await self.job(job, principal)
        detail = f"it does not wait: it is {alive.row.phase}"
        return Why(code="none", detail=f"{detail}, {alive.row.why}" if alive.row.why else detail)

    async def wait(
        self, job: JobId, principal: Principal, done: Callable[[Alive], bool], timeout_s: float
    ) -> Alive:
        """Give the job once ``done`` says so, or as it is after ``timeout_s``."""
        ends_at = self.clock.monotonic_s() + timeout_s
        while True:
            with self.feed.waiting(job) as news:
                alive = await self.job(job, principal)
                left = ends_at - self.clock.monotonic_s()
                if done(alive) or alive.row.is_final or left <= 0 or self.feed.closed:
                    return alive
                await asyncio.wait({news}, timeout=left)

    async def stop(self, job: JobId, principal: Principal, reason: str) -> StopAnswer:
        """Ask for a job's end; a race with any other step is read again and decided again."""
        await self.job(job, principal)
        if not principal.may_write:
            raise refuse(403, "auth.viewer", "a viewer may look, not stop", "use a member token")
        for _ in range(STOP_TRIES):
            stop = policy.stop(await self.story(jobs.stream(job)), principal.actor, reason)
            if stop.unit is None:
                return StopAnswer(
                    id=job, phase=stop.phase, verdict=stop.verdict, position=stop.position
                )
            stood = await self.append(stop.unit)
            if stood is not None:
                return StopAnswer(id=job, phase=stop.phase, verdict=stop.verdict, position=stood[0])
        raise Unavailable("the job moves too fast to be stopped just now")

    def node(self, name: str) -> Node:
        """Give a node by its name.

        Raises:
            NotFound: none of that name ever joined.
        """
        for node in self.picture.nodes.values():
            if node.name == name:
                return node
        raise NotFound(f"there is no node {name[:80]!r}")

    async def change_node(self, name: str, asked: ChangeNode, principal: Principal) -> Node:
        """Ask for a node to be used otherwise; asking twice is asking once."""
        for _ in range(STOP_TRIES):
            unit = policy.change_node(self.node(name), asked, principal.actor)
            if isinstance(unit, Rejected):
                raise refuse(409, unit.code, unit.detail, unit.hint, "change")
            if unit is None:
                return self.node(name)
            stood = await self.append(unit)
            reached = stood[1] if stood is not None else (await self.log.head()).number
            await self.source.reached(reached, READ_TIMEOUT_S)
            if stood is not None:
                return self.node(name)
        raise Unavailable("the node changes too fast to be changed just now")

    async def create_token(self, asked: CreateToken, principal: Principal) -> tuple[Token, str]:
        """Make a credential; its secret is in the answer and nowhere else."""
        kind: TokenKind = asked.kind
        tokens.check_subject(kind, asked.subject, self.cell)
        randomness = self.random(tokens.ID_BYTES + tokens.SECRET_BYTES)
        created, text = tokens.mint(kind, asked.subject, randomness)
        stood = await self.append(policy.create_token(created, principal.actor))
        if stood is None:
            raise Unavailable("this token's id is in use; ask again")
        await self.source.reached(stood[1], READ_TIMEOUT_S)
        return self.picture.tokens[created.token], text

    async def revoke_token(self, token: TokenId, principal: Principal) -> Token:
        """Let a token open nothing any more; revoking twice is revoking once."""
        known = self.picture.tokens.get(token)
        if known is None:
            raise NotFound(f"there is no token {token[:80]!r}")
        if known.revoked_at is None:
            stood = await self.append(policy.revoke_token(token, principal.actor))
            if stood is not None:
                await self.source.reached(stood[1], READ_TIMEOUT_S)
        return self.picture.tokens[token]


def is_done(until: Until) -> Callable[[Alive], bool]:
    """Give the test for a wait: until the job was admitted or refused, or until it ended."""
    if until == "decided":
        return lambda alive: alive.row.phase != "submitted"
    return lambda alive: alive.row.phase in FINAL_PHASES
