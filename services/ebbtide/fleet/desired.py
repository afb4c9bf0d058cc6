"""Desired state of a node, as a pure function of the picture.

Every attempt to run and every one to end.
"""

import datetime as dt

from ebbtide.contracts.agents import Desired, DesiredAttempt, DesiredWorker
from ebbtide.contracts.ids import NodeNumber, Workspace
from ebbtide.contracts.job_spec import command_of, workers_of
from ebbtide.fleet.inbox import Inbox, Stale
from ebbtide.fleet.model import ROUND, Picture
from ebbtide.model.job import Job
from ebbtide.model.job_places import workers_on


def desired(picture: Picture, inbox: Inbox, node: NodeNumber, now: dt.datetime) -> Desired:
    """Say what ``node`` shall do.

    Attempts in back-off are not named before their time, nor those that were placed before the node
    was fenced: they are about to be called lost.
    """
    there = picture.world.nodes[node]
    live = [picture.world.jobs[name] for name in picture.on_node.get(node, {})]
    run = tuple(
        _attempt(inbox, one, node)
        for one in live
        if one.placed_at > there.fenced_at
        and (one.not_before is None or one.not_before <= now or one.attempt_stop is not None)
    )
    end = tuple(_stale(one) for one in inbox.stale.get(node, {}).values())
    return Desired(
        epoch=picture.epoch, position=picture.position, attempts=run + end, boot=there.boot
    )


def _attempt(inbox: Inbox, one: Job, node: NodeNumber) -> DesiredAttempt:
    assert one.placement is not None  # noqa: S101  # a live attempt has its places
    spec, places = one.spec, one.placement.places
    gang = workers_of(spec)
    workers = tuple(
        DesiredWorker(
            worker=worker,
            role=gang[worker][0],
            index=gang[worker][1],
            command=command_of(spec, gang[worker][0]),
            resources=spec.roles[gang[worker][0]].resources,
            devices=places[worker].devices,
            share_milli=places[worker].share_milli,
        )
        for worker in workers_on(one.placement, node)
    )
    return DesiredAttempt(
        job=one.id,
        name=spec.name,
        workspace=one.workspace,
        epoch=one.placed_epoch,
        attempt=one.attempt,
        round=ROUND,
        type=spec.type,
        code=spec.code,
        env=spec.env,
        when_cut_off=spec.when_cut_off,
        grace_s=spec.grace_s,
        world=len(gang),
        workers=workers,
        master=inbox.masters.get((one.placed_epoch, one.id, one.attempt), ""),
        end=one.attempt_stop,
        resume_step=one.resume_step,
        resume_folder=one.resume_folder,
    )


def _stale(one: Stale) -> DesiredAttempt:
    """Have an attempt ended that the log is past; the node knows its workers."""
    epoch, job, attempt = one.key
    return DesiredAttempt(
        job=job,
        name="",
        workspace=Workspace(""),
        epoch=epoch,
        attempt=attempt,
        round=one.round,
        type="custom",
        code="",
        env={},
        when_cut_off="stop",
        grace_s=0,
        world=0,
        workers=(),
        end="stop_requested",
    )
