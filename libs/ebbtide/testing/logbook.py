"""Appends and listeners for tests of the log, showing only what matters."""

import datetime as dt
from collections.abc import Sequence

import asyncpg
import msgspec

from ebbtide.contracts.envelope import Append, Position, Recorded, Unit
from ebbtide.contracts.events import JobQueued
from ebbtide.contracts.ids import JobId, QuotaName
from ebbtide.eventlog.log import Decided, Log
from ebbtide.testing.builders import START

BEGINNING = Position(1, 0)


def say(
    stream: str,
    expected: int | None = None,
    *,
    closes: bool = False,
    text: str = "",
    actor: str = "",
) -> Append:
    """Say something on ``stream``; what, does not matter to the log."""
    body = JobQueued(job=JobId(text or stream), quota=QuotaName("default"))
    return Append(stream=stream, body=body, expected=expected, closes=closes, actor=actor)


def unit(*appends: Append, unmoved: Sequence[str] = ()) -> Unit:
    """Make a unit."""
    return Unit(appends=appends, unmoved=tuple(unmoved))


def decided(
    *units: Unit,
    service: str = "api",
    revision: int | None = None,
    read_to: Position = BEGINNING,
    at: dt.datetime = START,
) -> Decided:
    """Make a batch; without a revision, as a door does."""
    return Decided(service=service, read_to=read_to, decided_at=at, units=units, revision=revision)


async def fill(log: Log, count: int, stream: str = "filler") -> int:
    """Append ``count`` events of one unit each to ``stream``; give the new head's position."""
    head = await log.head()
    done = 0
    while done < count:
        size = min(500, count - done)
        await log.append(decided(*[unit(say(stream))] * size, read_to=head))
        done += size
    return (await log.head()).number


async def empty(database_url: str) -> None:
    """Put a migrated database's log back to its beginning; nobody else may be using it."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "TRUNCATE log.events, log.streams, log.services, log.snapshots;"
        "UPDATE log.head SET epoch = 1, position = 0, at = 'epoch', level = 1"
    )
    await connection.close()


async def end_sessions(admin: asyncpg.Connection) -> None:
    """Cut every connection that a log has to this database."""
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'ebbtide-log' AND datname = current_database()"
    )


async def is_waiting(admin: asyncpg.Connection) -> bool:
    """Say whether anybody waits for a lock."""
    return bool(await admin.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))


def positions(events: Sequence[Recorded]) -> list[int]:
    """Give the positions of events."""
    return [event.position for event in events]


def without_chance(event: Recorded) -> Recorded:
    """Give an event without what differs between two logs that heard the same: its id and stamp."""
    return msgspec.structs.replace(event, event_id="", at=START)


class Listening:
    """A listener that keeps what it was handed."""

    def __init__(self) -> None:
        self.events: list[Recorded] = []

    def deliver(self, events: Sequence[Recorded]) -> None:
        """Keep events."""
        self.events.extend(events)

    @property
    def positions(self) -> list[int]:
        """Give the positions of all that it was handed."""
        return positions(self.events)
