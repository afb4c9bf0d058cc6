"""What a process gives to each of its services, and what it wants back: parts that run."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from ebbtide.chassis.bus import Bus
from ebbtide.chassis.clock import Clock
from ebbtide.eventlog.log import Log, Source


class Context(NamedTuple):
    """The world as a service may touch it. ``environ`` is for parsing settings once, at the start.

    ``database_url`` is for a service's private tables (projections); the log has its own
    connections.
    """

    cell: str
    log: Log
    source: Source
    bus: Bus
    clock: Clock
    store: Path
    database_url: str
    environ: Mapping[str, str]


class Part(Protocol):
    """Something that a process runs beside others: a cycle, an HTTP server, the relay."""

    name: str

    async def start(self) -> None:
        """Get ready: restore, subscribe, attach to the source. The source does not deliver yet."""
        ...

    async def run(self) -> None:
        """Work until cancelled; an exception ends the process, which is started again."""
        ...

    async def stop(self) -> None:
        """Drain within a bound; called once after :meth:`run` was cancelled."""
        ...
