"""Admission: a job that can never run is refused at once with the numbers, any other is queued.

Whether it fits *now* is none of this service's business: it holds no capacity.
"""

import datetime as dt

from ebbtide.chassis.service import Decision
from ebbtide.contracts.envelope import PLATFORM, Append, Unit
from ebbtide.contracts.errors import Rejected
from ebbtide.contracts.events import JobQueued, JobRejected, QuotaChanged
from ebbtide.contracts.ids import QuotaName
from ebbtide.contracts.job_spec import JobSpec
from ebbtide.contracts.units import show_vector
from ebbtide.model import fit, job, resources
from ebbtide.model.job import Job
from ebbtide.model.world import quota_stream
from ebbtide.quota.model import Picture

DEFAULT = QuotaName("default")
BATCH = 256
"""Jobs answered per cycle, so that one append stays small."""


def decide(picture: Picture, _now: dt.datetime) -> Decision:
    """Make the default quota if there is none, then answer fresh jobs in submit order."""
    if DEFAULT not in picture.world.quotas:
        return Decision(units=(_default(picture),))
    fresh = [picture.world.jobs[name] for name in list(picture.fresh)[:BATCH]]
    return Decision(units=tuple(_answer(picture, one) for one in fresh))


def _default(picture: Picture) -> Unit:
    changed = QuotaChanged(quota=DEFAULT, ceiling=picture.ceiling)
    append = Append(
        stream=quota_stream(picture.cell),
        body=changed,
        expected=picture.world.quota_version,
        workspace=PLATFORM,
        actor="service:quota",
    )
    return Unit(appends=(append,))


def _answer(picture: Picture, one: Job) -> Unit:
    refused = admit(picture, one.spec)
    body: JobQueued | JobRejected = JobQueued(job=one.id, quota=one.spec.quota)
    if refused is not None:
        body = JobRejected(job=one.id, code=refused.code, detail=refused.detail, hint=refused.hint)
    append = Append(
        stream=job.stream(one.id),
        body=body,
        expected=one.version,
        workspace=one.workspace,
        actor="service:quota",
        cause=str(one.submitted),
        trace=one.trace,
        closes=refused is not None,
    )
    return Unit(appends=(append,), unmoved=(quota_stream(picture.cell),))


def admit(picture: Picture, spec: JobSpec) -> Rejected | None:
    """Say why ``spec`` can never run, or None.

    Past every node's capacity is judged only where nodes are, or ever were, registered: on an empty
    platform a job waits for nodes to come.
    """
    if spec.quota not in picture.world.quotas:
        known = ", ".join(sorted(picture.world.quotas))
        return Rejected(
            code="quota.unknown",
            detail=f"there is no quota {spec.quota!r}",
            hint=f"use one of: {known}",
        )
    if spec.idle != "never":
        return Rejected(
            code="quota.idle_unsupported",
            detail=f"idle = {spec.idle!r} asks for lent capacity, and quotas do not lend yet",
            hint='leave it out or write idle = "never"',
        )
    return _past_ceiling(picture, spec) or _past_nodes(picture, spec)


def _past_ceiling(picture: Picture, spec: JobSpec) -> Rejected | None:
    need = fit.gang_total(spec)
    ceiling = picture.world.quotas[spec.quota]
    over = resources.within({}, need, ceiling)
    if not over:
        return None
    return Rejected(
        code="quota.ceiling",
        detail=f"the gang needs {show_vector(need)}; the ceiling of quota {spec.quota!r} is "
        f"{show_vector(ceiling)}",
        hint="ask for less, or have the quota's ceiling raised",
    )


def _past_nodes(picture: Picture, spec: JobSpec) -> Rejected | None:
    """Refuse a worker that no node could hold.

    A gang too large for all nodes together waits for more.
    """
    nodes = list(picture.world.nodes.values())
    alone = fit.worker_too_large(spec, nodes) if nodes else None
    if alone is None:
        return None
    role, short = alone
    need = show_vector(spec.roles[role].resources)
    return Rejected(
        code="placement.worker_too_large",
        detail=f"a worker of role {role!r} needs {need}; the nearest of {len(nodes)} nodes "
        f"lacks {show_vector(short)}",
        hint="ask for less per worker, or add a larger node",
    )
