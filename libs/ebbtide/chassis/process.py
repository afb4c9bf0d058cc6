"""How a process of ours starts, runs its parts and drains.

The same for one service and for all in one.

Crash-only: a part that raises ends the process, and whoever supervises it starts it again. A new
epoch of the log is the one exception: everything is dropped and built anew inside the process.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, TypeVar

import structlog

from ebbtide.chassis import logs
from ebbtide.chassis.bus import Bus, Message
from ebbtide.chassis.bus_nats import NatsBus
from ebbtide.chassis.clock import SystemClock
from ebbtide.chassis.context import Context, Part
from ebbtide.chassis.settings import Connections, connections
from ebbtide.contracts import subjects
from ebbtide.contracts.errors import EbbtideError, NotFound, StaleEpoch, Unavailable
from ebbtide.contracts.upcasts import UnknownEvent
from ebbtide.eventlog import migrate, wire
from ebbtide.eventlog.postgres import PostgresLog
from ebbtide.eventlog.reader import Reader

Build = Callable[[Context], list[Part]]
Hear = Literal["memory", "stream", "log"]
"""How others' events are noticed at once.

Own commits only, JetStream, or Postgres NOTIFY (relay).
"""

SERVERS_WAIT_S = 60.0
"""How long a process waits for its servers at its start: they may start at the same time."""
DRAIN_S = 5.0
REFOLD_S = 0.5
"""Until the relay raises the epoch of a log that was put back, a new life may be refused too."""
EXIT_BROKEN, EXIT_BAD_SETTINGS = 70, 78

T = TypeVar("T")
_log = structlog.get_logger()


def main(name: str, builds: Sequence[Build], hear: Hear = "stream") -> None:
    """Run a process until it is told to stop; never returns normally on a failure."""
    logs.set_up(name)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_run(builds, os.environ, hear))
    except EbbtideError as error:
        _log.error("process.refused", error=str(error), code=error.code)
        sys.exit(EXIT_BAD_SETTINGS)
    except Exception as error:  # noqa: BLE001  # the last door: log it whole, then end
        _log.error("process.broken", error=repr(error), exc_info=error)
        sys.exit(EXIT_BROKEN)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Take uvloop for services; they start no processes, which it is slow at."""
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _run(builds: Sequence[Build], environ: Mapping[str, str], hear: Hear) -> None:
    settings = connections(environ)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    while not stop.is_set():
        try:
            await _life(builds, settings, environ, hear, stop)
        except* StaleEpoch:
            _log.warning("process.refolds", reason="the log has a new epoch")
            await asyncio.sleep(REFOLD_S)


async def _life(
    builds: Sequence[Build],
    settings: Connections,
    environ: Mapping[str, str],
    hear: Hear,
    stop: asyncio.Event,
) -> None:
    """Live in one epoch of the log, from connecting to draining."""
    async with _servers(settings) as (log, bus):
        reader = Reader(log)
        log.on_commit = reader.offer
        context = Context(
            cell=settings.cell,
            log=log,
            source=reader,
            bus=bus,
            clock=SystemClock(),
            store=Path(settings.store),
            database_url=settings.database_url,
            environ=environ,
        )
        parts = [part for build in builds for part in build(context)]
        try:
            for part in parts:
                await part.start()
            await reader.start()
            gc.collect()
            gc.freeze()
            await _work(parts, reader, _hearing(settings.cell, log, bus, reader, hear), stop)
        finally:
            await _drain(parts)


async def _work(
    parts: Sequence[Part],
    reader: Reader,
    hearing: Callable[[], Awaitable[None]],
    stop: asyncio.Event,
) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(reader.run()), group.create_task(_forever(hearing))]
        tasks += [group.create_task(part.run(), name=part.name) for part in parts]
        _log.info("process.running", parts=[part.name for part in parts])
        stopping = group.create_task(stop.wait())
        await stopping
        for task in tasks:
            task.cancel()


async def _forever(hearing: Callable[[], Awaitable[None]]) -> None:
    """Begin to hear, again and again until the servers are ready for it."""
    while True:
        try:
            await hearing()
        except (Unavailable, NotFound):
            await asyncio.sleep(0.2)
        else:
            return


def _hearing(
    cell: str, log: PostgresLog, bus: Bus, reader: Reader, hear: Hear
) -> Callable[[], Awaitable[None]]:
    """Give what makes the reader notice at once what other processes append."""

    async def on_message(message: Message) -> None:
        try:
            reader.hear(wire.decode(message.data))
        except UnknownEvent:
            reader.poke(message.sequence)  # the log itself will say so, and stop the process

    async def from_stream() -> None:
        await bus.follow(subjects.events_stream(cell), reader.position.number, on_message)

    async def from_log() -> None:
        await log.listen(reader.poke)

    async def from_memory() -> None:
        return

    return {"memory": from_memory, "stream": from_stream, "log": from_log}[hear]


@asynccontextmanager
async def _servers(settings: Connections) -> AsyncIterator[tuple[PostgresLog, NatsBus]]:
    """Connect to both servers at once, waiting for them within a bound; close what was opened."""

    async def to_log() -> PostgresLog:
        await migrate.migrate(settings.database_url)
        return await PostgresLog.connect(settings.database_url)

    log, bus = await asyncio.gather(
        _patiently(to_log),
        _patiently(lambda: NatsBus.connect(settings.nats_url, name=f"ebb-{os.getpid()}")),
    )
    try:
        yield log, bus
    finally:
        await bus.close()
        await log.close()


async def _patiently(connect: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(SERVERS_WAIT_S):
        while True:
            try:
                return await connect()
            except Unavailable as error:
                _log.info("process.waits_for_server", error=str(error))
                await asyncio.sleep(0.02)


async def _drain(parts: Sequence[Part]) -> None:
    """Stop every part within a bound, last started first.

    One that cannot must not keep the others.
    """
    for part in reversed(parts):
        try:
            async with asyncio.timeout(DRAIN_S):
                await part.stop()
        except (TimeoutError, EbbtideError) as error:
            _log.warning("part.not_drained", part=part.name, error=repr(error))
