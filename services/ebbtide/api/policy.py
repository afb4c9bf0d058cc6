"""What the door says to the log for each thing that may be asked of it. Pure."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from ebbtide.api.model import Row, begin, evolve
from ebbtide.contracts.envelope import PLATFORM, Append, Recorded, Unit
from ebbtide.contracts.errors import InvariantBroken, Rejected
from ebbtide.contracts.events import (
    JobStopRequested,
    JobSubmitted,
    NodeChangeRequested,
    TokenCreated,
    TokenRevoked,
)
from ebbtide.contracts.http import FINAL_PHASES, ChangeNode, Phase
from ebbtide.contracts.ids import JobId, TokenId, Workspace
from ebbtide.contracts.job_spec import JobSpec
from ebbtide.model import job as jobs
from ebbtide.model import node as nodes
from ebbtide.model.node import Node

DEFAULT_WORKSPACE = Workspace("default")
REASON_MAX = 500


def submit(job: JobId, workspace: Workspace, spec: JobSpec, actor: str, trace: str) -> Unit:
    """Ask for a job; the unit stands only if nobody used its id before."""
    body = JobSubmitted(job=job, workspace=workspace, spec=spec)
    append = Append(
        stream=jobs.stream(job),
        body=body,
        expected=0,
        workspace=workspace,
        actor=actor,
        trace=trace,
    )
    return Unit(appends=(append,))


def submitted_before(
    first: Recorded, workspace: Workspace, spec: JobSpec
) -> tuple[int, Rejected | None]:
    """Judge a second submit with one id: the first's position, and a no if the job is another."""
    body = first.body
    if isinstance(body, JobSubmitted) and body.workspace == workspace and body.spec == spec:
        return first.position, None
    detail = "another job was submitted with this id"
    return first.position, Rejected(
        code="job.id_taken", field="id", detail=detail, hint="make a new id for a new job"
    )


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """What a wish to stop comes to: ``unit`` is None when nothing has to be said any more."""

    verdict: Literal["asked", "already_asked", "already_final"]
    phase: Phase
    position: int
    unit: Unit | None = None


def fold(story: Sequence[Recorded]) -> Row:
    """Fold a job's own stream, read whole."""
    row: Row | None = None
    for recorded in story:
        body = recorded.body
        if isinstance(body, JobSubmitted):
            row = begin(recorded, body)
        elif row is not None and recorded.stream.startswith("job-"):
            row = evolve(row, recorded, body)  # type: ignore[arg-type]  # only job events are there
    if row is None:
        raise InvariantBroken("a job's stream does not begin with its submission")
    return row


def stop(story: Sequence[Recorded], actor: str, reason: str) -> Stop:
    """Decide on a wish to stop, over the job's whole stream. Asking twice is asking once."""
    row = fold(story)
    asked = next((one for one in story if isinstance(one.body, JobStopRequested)), None)
    if row.phase in FINAL_PHASES:
        return Stop(verdict="already_final", phase=row.phase, position=row.position)
    if asked is not None:
        return Stop(verdict="already_asked", phase=row.phase, position=asked.position)
    append = Append(
        stream=jobs.stream(row.id),
        body=JobStopRequested(job=row.id, reason=reason[:REASON_MAX]),
        expected=row.version,
        workspace=row.workspace,
        actor=actor,
        cause=str(row.submitted),
        trace=story[0].trace,
    )
    unit = Unit(appends=(append,))
    return Stop(verdict="asked", phase="stopping", position=0, unit=unit)


def change_node(known: Node, asked: ChangeNode, actor: str) -> Unit | Rejected | None:
    """Ask for a node to be used otherwise; nothing is said where it is so already.

    Nobody can vouch for a node that may answer at any moment: only one that is lost, and so has
    to take its lease anew and to say all that it runs, can be fenced.
    """
    if asked.change == "fence" and known.reachability != "lost":
        return Rejected(
            code="node.not_lost",
            detail=f"node {known.name} is {known.reachability}: its agent says what runs there",
            hint="drain it; or switch it off, and fence it once it is lost",
        )
    if asked.change == "fence" and known.fence_asked:
        return None
    if asked.change == known.asked or (asked.change == known.cordon and known.asked is None):
        return None
    if asked.change == "uncordon" and known.cordon is None and known.asked is None:
        return None
    body = NodeChangeRequested(node=known.number, change=asked.change, reason=asked.reason)
    append = Append(
        stream=nodes.stream(known.number),
        body=body,
        expected=known.version,
        workspace=PLATFORM,
        actor=actor,
    )
    return Unit(appends=(append,))


def create_token(created: TokenCreated, actor: str) -> Unit:
    """Say that a token exists; its id is new, or the unit falls."""
    return _token(created.token, created, 0, actor)


def revoke_token(token: TokenId, actor: str) -> Unit:
    """Say that a token opens nothing any more; only its creation came before."""
    return _token(token, TokenRevoked(token=token), 1, actor)


def _token(token: TokenId, body: TokenCreated | TokenRevoked, expected: int, actor: str) -> Unit:
    append = Append(
        stream=f"token-{token}",
        body=body,
        expected=expected,
        workspace=PLATFORM,
        actor=actor,
        closes=isinstance(body, TokenRevoked),
    )
    return Unit(appends=(append,))
