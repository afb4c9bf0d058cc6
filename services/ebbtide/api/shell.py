"""Binds the door to a process: projector first, then the HTTP server."""

import asyncio
import os
from pathlib import Path

import structlog

from ebbtide.api.codes import CodeStore
from ebbtide.api.door import Door
from ebbtide.api.feed import Feed
from ebbtide.api.memory_views import MemoryViews
from ebbtide.api.postgres_views import PostgresViews
from ebbtide.api.projector import Projector
from ebbtide.api.server import HttpServer
from ebbtide.api.settings import Settings
from ebbtide.api.tokens import recognise
from ebbtide.chassis.context import Context, Part
from ebbtide.chassis.settings import load
from ebbtide.contracts.ids import TokenId

_log = structlog.get_logger("ebbtide.api")


def door_for(context: Context) -> Door:
    """Make a door; without a database its views are in memory, as its log is."""
    feed = Feed()
    views = PostgresViews(context.database_url) if context.database_url else MemoryViews()
    return Door(
        cell=context.cell,
        log=context.log,
        source=context.source,
        bus=context.bus,
        clock=context.clock,
        projector=Projector(context.log, context.source, views, feed),
        feed=feed,
        codes=CodeStore(context.store, str(os.getpid())),
        store=context.store,
    )


def parts(context: Context) -> list[Part]:
    """Give what a process runs for this service."""
    settings = load(Settings, context.environ, "EBB_API_")
    door = door_for(context)
    ready = asyncio.Event()
    first: list[Part] = [door.projector]
    if settings.callout_seed:
        first.append(_callout(context, Path(settings.callout_seed), door, ready))
    if settings.callout_system_url:
        first.append(_expulsion(settings.callout_system_url, door))
    elif settings.callout_seed:
        hint = "set EBB_API_CALLOUT_SYSTEM_URL"
        _log.warning("expulsion.off", why="NATS's system account is not known", hint=hint)
    return [*first, HttpServer(door, settings, ready.set)]


def _callout(context: Context, seed: Path, door: Door, ready: asyncio.Event) -> Part:
    """Have NATS's questions answered from the same tokens that open the HTTP door."""
    # Imported here because a platform whose NATS is set up by others needs none of it.
    from ebbtide.api.callout import Callout, Grant

    def lookup(text: str) -> Grant | None:
        token = recognise(door.picture.tokens, text)
        if token is None:
            return None
        return Grant(token=token.id, kind=token.kind, subject=token.subject)

    callout = Callout(context.bus, context.cell, seed.read_text(encoding="utf-8"), lookup)
    callout.ready = ready
    return callout


def _expulsion(system_url: str, door: Door) -> Part:
    """Have NATS end the connections of tokens that the door knows as revoked."""
    from ebbtide.api.expulsion import Expulsion

    def revoked() -> list[TokenId]:
        known = door.picture.tokens.values()
        return [token.id for token in known if token.kind == "agent" and token.revoked_at]

    return Expulsion(system_url, revoked)
