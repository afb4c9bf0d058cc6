"""The log of a simulated world: one store, reached by each process over a connection of its own.

A call takes time to arrive and its answer takes time to come back, both drawn from the seed; what
has been sent is done even if the caller dies meanwhile. The store may be away, may lose answers,
and may be put back to an older state, as by a failover to a standby that lagged. It must record
nothing that the real log would not.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

import msgspec

from ebbtide.contracts.envelope import Appended, Position, Recorded
from ebbtide.contracts.errors import EbbtideError, Unavailable
from ebbtide.eventlog.entries import OnCommit, Stamps
from ebbtide.eventlog.log import Checkpoint, Decided, Snapshot
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.testing.checks import PromiseBroken

T = TypeVar("T")
REFUSED_S = 0.05
"""A server that is away says so quickly; one that hangs is a longer delay."""


class Trouble(msgspec.Struct):
    """How bad the store is just now. ``lose`` is the share of answers that never come."""

    away: bool = False
    lose: float = 0.0
    delay_s: float = 0.002


class _Undo(NamedTuple):
    """What a call changed, as it was before."""

    head: int
    streams: dict[str, Any]
    checkpoints: dict[str, Checkpoint]
    snapshots: dict[str, Any]


class Store(MemoryLog):
    """The log's server. ``seen`` is told each event in the moment in which it is recorded.

    ``broken`` hears when a service decided on less than it, or a replica, had before.
    """

    def __init__(self, clock: Stamps, dice: random.Random) -> None:
        super().__init__(clock)
        self.trouble = Trouble()
        self.dice = dice
        self.life = 0
        self.ears: list[tuple[Callable[[int], None], contextvars.Context]] = []
        self.seen: Callable[[Recorded], None] = lambda _: None
        self.broken: Callable[[BaseException], None] = lambda _: None
        self._done: list[_Undo] = []

    @property
    def events(self) -> list[Recorded]:
        """All that is recorded."""
        return self._events

    async def append(self, decided: Decided) -> Appended:
        """Record as the log does, and remember how to take it back."""
        names = {append.stream for unit in decided.units for append in unit.appends}
        undo = _Undo(
            len(self._events),
            {name: msgspec.structs.replace(self._stream(name)) for name in names},
            dict(self._checkpoints),
            {name: list(kept) for name, kept in self._snapshots.items()},
        )
        appended = await super().append(decided)
        before = undo.checkpoints.get(decided.service)
        if decided.revision is not None and before and before.read_to > decided.read_to:
            self.broken(PromiseBroken(f"{decided} was decided on less than {before}"))
        self._done.append(undo)
        for recorded in self._events[undo.head :]:
            self.seen(recorded)
        if len(self._events) > undo.head:
            self._tell()
        return appended

    def _tell(self) -> None:
        """Notify who listens, as Postgres does after each commit."""
        loop = asyncio.get_running_loop()
        for heard, context in self.ears:
            loop.call_later(self.draw_s(), heard, len(self._events), context=context)

    def draw_s(self) -> float:
        """Draw how long one way takes."""
        return self.dice.random() * self.trouble.delay_s

    def put_back(self, calls: int) -> None:
        """Fail over to a standby that had not heard of the newest ``calls`` appends.

        Its promotion begins a new epoch, and every connection is lost.
        """
        for undo in reversed(self._done[len(self._done) - min(calls, len(self._done)) :]):
            del self._events[undo.head :]
            self._streams.update(undo.streams)
            self._checkpoints = undo.checkpoints
            self._snapshots = undo.snapshots
            self._done.pop()
        self._epoch += 1
        self.break_connections()

    def break_connections(self) -> None:
        """Have every call that is under way fail."""
        self.life += 1


class Line:
    """One process's connection to the store: a :class:`ebbtide.eventlog.log.Log`."""

    def __init__(self, store: Store) -> None:
        self.on_commit: OnCommit | None = None
        self._store = store
        self._closed = False
        self._served_s = 0.0
        self._outside = contextvars.Context()
        self._inside = contextvars.copy_context()
        self._ears: list[tuple[Callable[[int], None], contextvars.Context]] = []

    def vanish(self) -> None:
        """Be gone at once, as the connection of a process that was killed."""
        self._closed = True
        for ear in self._ears:
            self._store.ears.remove(ear)
        self._ears.clear()

    async def append(self, decided: Decided) -> Appended:
        """Record; commits of this connection are told to ``on_commit`` before it answers."""
        return await self._ask(lambda: self._store.append(decided), writes=True)

    async def head(self) -> Position:
        """Give epoch and position of the newest event."""
        return await self._ask(self._store.head)

    async def read(self, after: int, limit: int) -> list[Recorded]:
        """Give at most ``limit`` events that follow position ``after``, in order."""
        return await self._ask(lambda: self._store.read(after, limit))

    async def read_stream(self, stream: str) -> list[Recorded]:
        """Give all events of one stream, in order."""
        return await self._ask(lambda: self._store.read_stream(stream))

    async def checkpoint(self, service: str) -> Checkpoint:
        """Give the service's checkpoint."""
        return await self._ask(lambda: self._store.checkpoint(service))

    async def load_snapshots(self, service: str, fold_version: int) -> list[Snapshot]:
        """Give the kept snapshots, newest first."""
        return await self._ask(lambda: self._store.load_snapshots(service, fold_version))

    async def save_snapshot(self, service: str, snapshot: Snapshot) -> None:
        """Keep a snapshot."""
        await self._ask(lambda: self._store.save_snapshot(service, snapshot))

    async def raise_epoch(self) -> Position:
        """Begin a new epoch."""
        return await self._ask(self._store.raise_epoch)

    async def listen(self, heard: Callable[[int], None]) -> None:
        """Have ``heard`` called after each commit of anybody."""
        await self.head()
        ear = (heard, self._inside)
        self._ears.append(ear)
        self._store.ears.append(ear)

    async def close(self) -> None:
        """Let go."""
        self.vanish()

    async def _ask(self, work: Callable[[], Coroutine[Any, Any, T]], *, writes: bool = False) -> T:
        """Send ``work`` to the store and wait for what comes back.

        Calls that write arrive in the order in which they were sent, as over one connection.
        """
        store, loop = self._store, asyncio.get_running_loop()
        if self._closed or store.trouble.away:
            await asyncio.sleep(0 if self._closed else REFUSED_S)
            raise Unavailable("the log does not answer")
        answer: asyncio.Future[T] = loop.create_future()
        at_s = loop.time() + store.draw_s()
        if writes:
            at_s = self._served_s = max(self._served_s, at_s)
        loop.call_at(at_s, self._serve, work, answer, store.life, context=self._outside)
        return await answer

    def _serve(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        answer: "asyncio.Future[T]",
        life: int,
    ) -> None:
        """Do the work at the store, and send the answer back."""
        store = self._store
        before, result = len(store.events), None
        error: EbbtideError | None = None
        if store.trouble.away or life != store.life:
            error = Unavailable("the connection was lost")
        else:
            try:
                work().send(None)
            except StopIteration as done:
                result = done.value
            except EbbtideError as refusal:
                error = refusal
            if store.trouble.lose and store.dice.random() < store.trouble.lose:
                error = Unavailable("the connection was lost before the answer came")
        said = store.events[before:] if error is None else []
        loop = asyncio.get_running_loop()
        loop.call_later(
            store.draw_s(), self._answer, answer, said, result, error, context=self._inside
        )

    def _answer(
        self,
        answer: "asyncio.Future[Any]",
        said: list[Recorded],
        result: object,
        error: EbbtideError | None,
    ) -> None:
        """Hand out what was recorded, then answer, as the real log does."""
        if self._closed:
            error = Unavailable("this log was closed")
        elif said and self.on_commit is not None:
            self.on_commit(said)
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)
