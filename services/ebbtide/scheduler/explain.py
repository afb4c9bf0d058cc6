"""Why a job waits: the turns that the next cycle would take, told in words and numbers. Pure.

A job that has its places may wait as well: for its back-off, or for a node that is away.
"""

import datetime as dt
from typing import assert_never

from ebbtide.contracts.ids import JobId
from ebbtide.contracts.units import show_vector
from ebbtide.contracts.waits import Why
from ebbtide.model import fit, resources
from ebbtide.model.job import Job
from ebbtide.model.job_places import nodes_of
from ebbtide.model.node import Node
from ebbtide.scheduler.model import Picture
from ebbtide.scheduler.policy import Turn, Waits, turns


def explain(picture: Picture, name: JobId, now: dt.datetime) -> Why | None:
    """Say what keeps a job waiting; None if nothing does that the scheduler knows of."""
    one = picture.world.jobs.get(name)
    if one is not None and one.is_live:
        return _placed(picture, one, now)
    if one is None or one.stage != "waiting":
        return None
    position = 1 + [job for _, _, job in picture.order].index(name)
    last: Turn | None = None
    for last in turns(picture, now):
        if last.job is one:
            return _said(picture, last, position, now)
    blocker = _gang(last.job) if last is not None else "none"
    detail = f"jobs ahead of it go first; the one that waits for room: {blocker}"
    return Why(code="queue.behind", detail=detail, position=position)


def _placed(picture: Picture, one: Job, now: dt.datetime) -> Why | None:
    """Say what keeps a job that has its places from going on: a node, or its back-off."""
    there = nodes_of(one.placement) if one.placement is not None else ()
    away = [node for node in map(picture.world.nodes.get, there) if node and not _answers(node)]
    if away:
        lost = next((node for node in away if node.reachability == "lost"), None)
        return Why(code="nodes.away", detail=_away(one, lost or away[0]))
    if one.not_before is None or one.not_before <= now or one.attempt_stop is not None:
        return None
    return Why(code="backoff", detail=_backoff(one, now), until=one.not_before)


def _answers(node: Node) -> bool:
    return node.reachability == "ready"


def _away(one: Job, node: Node) -> str:
    if node.reachability == "suspect":
        return f"its node {node.name} is suspect: it goes on, or ends, once that node answers"
    if one.spec.when_cut_off == "stop":
        return f"its node {node.name} is lost: it starts again elsewhere"
    return (
        f'its node {node.name} is lost, and it may still run there (when_cut_off = "run"): it goes '
        f"on once that node answers, or once somebody vouches that it is off: "
        f"ebb node fence {node.name}"
    )


def _backoff(one: Job, now: dt.datetime) -> str:
    left = (one.not_before - now).total_seconds() if one.not_before is not None else 0.0
    return f"it failed and starts again in {max(0.0, left):.0f} s"


def _said(picture: Picture, turn: Turn, position: int, now: dt.datetime) -> Why:
    if turn.waits is None:
        return Why(code="placing", detail="it is being placed", position=position)
    one = turn.job
    code, detail = _because(picture, one, turn.waits, now)
    until = one.not_before if turn.waits == "backoff" else None
    return Why(code=code, detail=detail, position=position, until=until)


def _because(picture: Picture, one: Job, waits: Waits, now: dt.datetime) -> tuple[str, str]:
    match waits:
        case "leaving":
            if one.stop_requested:
                return "stopping", "it was asked to stop"
            return "places.leaving", "its former places are being given back"
        case "backoff":
            return "backoff", _backoff(one, now)
        case "quota":
            return "quota.ceiling", _quota(picture, one)
        case "room":
            return "nodes.full", _room(picture, one)
        case "nodes":
            return _nodes(picture, one)
        case _:
            assert_never(waits)


def _gang(one: Job) -> str:
    workers = sum(role.replicas for role in one.spec.roles.values())
    words = "1 worker" if workers == 1 else f"{workers} workers"
    need = show_vector(fit.gang_total(one.spec))
    return f"{words} with {need} in all, priority {one.spec.priority}"


def _quota(picture: Picture, one: Job) -> str:
    quota = one.spec.quota
    ceiling, used = picture.world.quotas[quota], picture.used.get(quota, {})
    need = fit.gang_total(one.spec)
    over = resources.within(used, need, ceiling)
    if not over:
        return f"a job ahead of it waits for quota {quota}"
    held = {name: used.get(name, 0) for name in over}
    limit = {name: ceiling[name] for name in over}
    asks = {name: need.get(name, 0) for name in over}
    return (
        f"quota {quota} holds {show_vector(held)} of its ceiling of {show_vector(limit)}; "
        f"the job asks for {show_vector(asks)}"
    )


def _taking(picture: Picture) -> list[Node]:
    return [node for node in picture.world.nodes.values() if node.takes_work]


def _room(picture: Picture, one: Job) -> str:
    free = resources.total(picture.free[node.number].left for node in _taking(picture))
    need = fit.gang_total(one.spec)
    lacks = resources.lacking(need, free)
    if lacks:
        return f"it asks for {show_vector(need)}; {show_vector(lacks)} more must become free"
    return f"it asks for {show_vector(need)}; that much is free, but not where its workers fit"


def _nodes(picture: Picture, one: Job) -> tuple[str, str]:
    nodes, taking = picture.world.nodes.values(), _taking(picture)
    if not taking:
        kinds = {
            "cordoned": sum(node.cordon is not None for node in nodes),
            "suspect": sum(node.reachability == "suspect" for node in nodes),
            "lost": sum(node.reachability == "lost" for node in nodes),
        }
        counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
        which = f"none of {len(nodes)} nodes takes work ({counted})" if nodes else "there are none"
        return "nodes.none", which
    large = fit.worker_too_large(one.spec, taking)
    if large is not None:
        role, gap = large
        need = show_vector(one.spec.roles[role].resources)
        lacks = show_vector({name: amount for name, amount in gap.items() if amount})
        return "nodes.too_small", (
            f"a worker of role {role} asks for {need}; of {len(taking)} nodes that take work the "
            f"nearest lacks {lacks or 'a device of that model'}"
        )
    return "nodes.too_few", (
        f"{_gang(one)} do not fit together on the {len(taking)} nodes that take work, even empty"
    )
