"""How a process of ours starts, runs its parts and drains.

The same for one service and for all in one.

Crash-only: a part that raises ends the process, and whoever supervises it starts it again. A new
epoch of the log is the one exception: everything is dropped and built anew inside the process.
"""

import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import structlog

from ebbtide.chassis import exits, logs
from ebbtide.chassis.bus import Bus, Message
from ebbtide.chassis.bus_nats import NatsBus
from ebbtide.chassis.clock import SystemClock
from ebbtide.chassis.context import Context, Part
from ebbtide.chassis.settings import Connections, connections
from ebbtide.contracts import subjects
from ebbtide.contracts.errors import EbbtideError, NotFound, StaleEpoch, Unavailable
from ebbtide.contracts.upcasts import UnknownEvent
from ebbtide.eventlog import migrate, wire
from ebbtide.eventlog.postgres import LevelTooHighError, PostgresLog
from ebbtide.eventlog.reader import Reader

Build = Callable[[Context], list[Part]]
Hear = Literal["memory", "stream", "log"]
"""How others' events are noticed at once.

Own commits only, JetStream, or Postgres NOTIFY (relay).
"""

SERVERS_WAIT_S = 60.0
"""How long a process waits for its servers at its start; then it ends, to be started again."""
BRISK_FOR_S, BRISK_S, CALM_S = 5.0, 0.02, 0.5
"""Servers that start at the same time are there in seconds, and nobody should wait longer."""
SAY_EVERY_S = 10.0
BUS_WAIT_S = 5.0
"""Long enough for one try on a slow network."""
DRAIN_S = 5.0
REFOLD_S = 0.5
"""Until the relay raises the epoch of a log that was put back, a new life may be refused too."""


class Telling(Protocol):
    """A log that says when something was appended."""

    async def listen(self, heard: Callable[[int], None]) -> None:
        """Have ``heard`` called with the head's position after each commit of any process."""
        ...


T = TypeVar("T")
_log = structlog.get_logger()


def main(name: str, builds: Sequence[Build], hear: Hear = "stream") -> None:
    """Run a process until it is told to stop; never returns normally on a failure."""
    logs.set_up(name)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_run(builds, os.environ, hear))
    except Exception as error:  # noqa: BLE001  # the last door: say why, then end
        exits.end(error, for_good=(LevelTooHighError, migrate.MigrationBrokenError))


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
    servers = await _connected(settings, stop)
    if servers is None:
        return
    log, bus = servers
    try:
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
        notice = hearing(settings.cell, log, bus, reader, hear)
        await live(parts, reader, notice, stop, _settle_memory)
    finally:
        await bus.close()
        await log.close()


def _settle_memory() -> None:
    """Keep the collector from walking over pictures again and again: they live as long as we do."""
    gc.collect()
    gc.freeze()


async def live(
    parts: Sequence[Part],
    reader: Reader,
    notice: Callable[[], Awaitable[None]],
    stop: asyncio.Event,
    started: Callable[[], None],
) -> None:
    """Start every part, work until told to stop or until one raises, and drain.

    ``notice`` makes the reader hear at once what others append; ``started`` is called when all
    parts have started.
    """
    try:
        for part in parts:
            await part.start()
        await reader.start()
        started()
        await _work(parts, reader, notice, stop)
    finally:
        await _drain(parts)


async def _work(
    parts: Sequence[Part],
    reader: Reader,
    notice: Callable[[], Awaitable[None]],
    stop: asyncio.Event,
) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(reader.run()), group.create_task(_forever(notice))]
        tasks += [group.create_task(part.run(), name=part.name) for part in parts]
        _log.info("process.running", parts=[part.name for part in parts])
        stopping = group.create_task(stop.wait())
        await stopping
        for task in tasks:
            task.cancel()


async def _forever(notice: Callable[[], Awaitable[None]]) -> None:
    """Begin to hear, again and again until the servers are ready for it."""
    while True:
        try:
            await notice()
        except (Unavailable, NotFound):
            await asyncio.sleep(0.2)
        else:
            return


def hearing(
    cell: str, log: Telling, bus: Bus, reader: Reader, hear: Hear
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


async def _connected(
    settings: Connections, stop: asyncio.Event
) -> tuple[PostgresLog, NatsBus] | None:
    """Connect to both servers at once; None when told to stop while they are away.

    Raises:
        Unavailable: one of them was away for too long.
    """

    async def to_log() -> PostgresLog:
        await migrate.migrate(settings.database_url)
        return await PostgresLog.connect(settings.database_url)

    async def to_bus() -> NatsBus:
        wait_s = min(BUS_WAIT_S, SERVERS_WAIT_S)
        return await NatsBus.connect(settings.nats_url, name=f"ebb-{os.getpid()}", wait_s=wait_s)

    log = asyncio.create_task(_patiently("Postgres", to_log))
    bus = asyncio.create_task(_patiently("NATS", to_bus))
    told = asyncio.create_task(stop.wait())
    both = asyncio.gather(log, bus)
    either: set[asyncio.Future[Any]] = {both, told}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if both.done():
            return both.result()
    except BaseException:
        await _let_go(log, bus)
        raise
    finally:
        told.cancel()
    both.cancel()
    await _let_go(log, bus)
    return None


async def _let_go(log: "asyncio.Task[PostgresLog]", bus: "asyncio.Task[NatsBus]") -> None:
    """Give up connecting; close what is connected already."""
    for task in (log, bus):
        task.cancel()
    for made in await asyncio.gather(log, bus, return_exceptions=True):
        if not isinstance(made, BaseException):
            await made.close()


async def _patiently(server: str, connect: Callable[[], Awaitable[T]]) -> T:
    """Try again while the server is away; say so at first, and then now and then."""
    now_s = asyncio.get_running_loop().time
    began = now_s()
    say_at = 0.0
    while True:
        try:
            return await connect()
        except Unavailable as error:
            waited = now_s() - began
            if waited >= say_at:
                say = _log.warning if say_at else _log.info
                facts = {"server": server, "waited_s": round(waited, 1), "error": str(error)}
                say("process.waits_for_server", **facts)
                say_at = waited + SAY_EVERY_S
            if waited >= SERVERS_WAIT_S:
                raise Unavailable(f"{server} was away for {waited:.0f} s: {error}") from error
            await asyncio.sleep(BRISK_S if waited < BRISK_FOR_S else CALM_S)


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
