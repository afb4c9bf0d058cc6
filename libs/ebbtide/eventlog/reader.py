"""The one reader of a process: takes events from whoever has them first, hands them on in order.

Events come from the process's own commits (:meth:`Reader.offer`), from the bus
(:meth:`Reader.hear`) or from the log; each is delivered once, as soon as everything before it was.
Where one is missing, pages of the log fill the gap. The log is the only truth: what is heard counts
only if it is of the epoch at the start, and a log that has a newer one, or fewer events than were
delivered, ends the reader with ``StaleEpoch``, so that the process builds its pictures anew.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

import msgspec
import structlog

from ebbtide.contracts.envelope import Position, Recorded
from ebbtide.contracts.errors import EbbtideError, InvariantBroken, StaleEpoch, Unavailable
from ebbtide.eventlog.log import Listener, Log

PAGE_EVENTS = 2_000
"""Events of one read: about 10 ms of work between two turns of the loop."""
AHEAD_MAX = 2_000
"""Events kept that came before their turn; the others are read from the log when it has come."""
RECENT_EVENTS = 512
"""Newest events kept for a listener that has almost caught up, so that it need not race the log."""
RETRY_S = 0.2

_log = structlog.get_logger()


class _Place(msgspec.Struct, eq=False):
    """A listener, and the position up to which it was handed events."""

    listener: Listener
    position: int


class Reader:
    """Hands the log's events to listeners; see :class:`ebbtide.eventlog.log.Source`.

    Attach listeners, then :meth:`start` and :meth:`run` (which starts by itself). Before the start
    nothing is delivered.
    """

    def __init__(self, log: Log, poll_s: float = 1.0) -> None:
        self._log = log
        self._poll_s = poll_s
        self._epoch = 0
        self._number = 0
        self._places: list[_Place] = []
        self._ahead: dict[int, Recorded] = {}
        self._recent: deque[Recorded] = deque(maxlen=RECENT_EVENTS)
        self._wanted = 0
        self._wake = asyncio.Event()
        self._poll_at = 0.0
        self._waiters: dict[asyncio.Future[None], int] = {}
        self._broken: EbbtideError | None = None
        self._reachable = True

    @property
    def position(self) -> Position:
        """Give epoch and position up to which events were delivered; epoch 0: not started."""
        return Position(self._epoch, self._number)

    def attach(self, listener: Listener, after: int) -> None:
        """Hand ``listener`` every event that follows ``after``, before and after this call.

        One that is attached already begins again at ``after``.
        """
        self._places = [place for place in self._places if place.listener is not listener]
        self._places.append(_Place(listener, after))
        self._wake.set()

    async def reached(self, position: int, timeout_s: float) -> None:
        """Return once events up to ``position`` were delivered to all that are attached.

        Raises:
            Unavailable: they were not within ``timeout_s``.
        """
        if self._settled() >= position:
            return
        self.poke(position)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = position
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError as error:
            done = self._settled()
            raise Unavailable(
                f"events up to {position} were not read within {timeout_s} s, only up to {done}"
            ) from error
        finally:
            del self._waiters[waiter]

    def offer(self, events: Sequence[Recorded]) -> None:
        """Take a commit of this process. Never raises: what goes wrong ends :meth:`run`."""
        if self._broken is not None or not events:
            return
        try:
            self._take(events)
        except EbbtideError as error:
            self._broken = error
            self._wake.set()

    def hear(self, recorded: Recorded) -> None:
        """Take an event from the bus, where it may come late, twice, early or not at all."""
        self.offer((recorded,))

    def poke(self, position_hint: int) -> None:
        """Have the log read soon, which may hold events up to ``position_hint``."""
        if position_hint > self._number:
            self._wanted = max(self._wanted, position_hint)
            self._wake.set()

    async def start(self) -> None:
        """Learn the epoch; begin behind the listener furthest back, without any at the head.

        Further calls do nothing.

        Raises:
            StaleEpoch: a listener knows more than the log holds: it was put back to an older state.
        """
        if self._epoch:
            return
        head = await self._log.head()
        for place in self._places:
            if place.position > head.number:
                raise StaleEpoch(
                    f"{place.position} was read once, but the log ends at {head.number}"
                )
        self._number = min((place.position for place in self._places), default=head.number)
        self._epoch = head.epoch
        self.poke(head.number)

    async def run(self) -> None:
        """Deliver until cancelled.

        Raises:
            StaleEpoch: the log has another history than at the start.
            InvariantBroken: the log has a hole, or a listener raised.
        """
        await self.start()
        try:
            while True:
                await self._woken()
                await self._turn()
        except EbbtideError as error:
            self._broken = error
            raise

    async def _turn(self) -> None:
        try:
            await self._poll()
            await self._read_on()
        except Unavailable as error:
            self._tell(False, str(error))
            await asyncio.sleep(RETRY_S)
            self._wake.set()
        else:
            self._tell(True)

    async def _woken(self) -> None:
        """Sleep until there may be something to read, or until the next poll; give up if broken."""
        try:
            async with asyncio.timeout_at(self._poll_at):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()
        if self._broken is not None:
            raise self._broken

    async def _poll(self) -> None:
        """Look at the head now and then: hints get lost, and epochs are raised without events."""
        now = asyncio.get_running_loop().time()
        if now < self._poll_at:
            return
        before = self._number  # commits of this process may go past the head while it is read
        head = await self._log.head()
        self._poll_at = now + self._poll_s
        if head.epoch != self._epoch or head.number < before:
            raise StaleEpoch(f"read to {self.position}, but the log is at {head}")
        self.poke(head.number)

    async def _read_on(self) -> None:
        """Read pages until everybody has what is known to be there."""
        while True:
            self._join()
            after, wanted = self._settled(), self._wanted
            if after >= max(wanted, self._number):
                return
            known = min(self._number, after + PAGE_EVENTS)
            page = await self._log.read(after, PAGE_EVENTS)
            self._check(page, after, known)
            if page:
                self._hand(page)
                self._follow_on()
            if len(page) < PAGE_EVENTS and self._wanted == wanted:
                # The log holds no more than this: the hint was wrong.
                self._wanted = 0

    def _check(self, page: Sequence[Recorded], after: int, known: int) -> None:
        """Refuse a page that contradicts what was delivered before, up to ``known``."""
        if after + len(page) < known:
            raise StaleEpoch(f"read to {self.position}, but the log ends at {after + len(page)}")
        if not page:
            return
        if page[-1].epoch > self._epoch:
            raise StaleEpoch(f"read to {self.position}, but the log is in epoch {page[-1].epoch}")
        if (page[0].position, page[-1].position) != (after + 1, after + len(page)):
            raise InvariantBroken(f"the log has a hole after position {after}")

    def _take(self, events: Sequence[Recorded]) -> None:
        """Deliver a run of events if its turn has come, else keep it and have the log read."""
        first, last = events[0], events[-1]
        if last.epoch > self._epoch > 0:
            raise StaleEpoch(f"read to {self.position}, but epoch {last.epoch} has begun")
        if last.epoch < self._epoch or not self._epoch:
            # Of another history, or too early: no more than a reason to look into the log.
            self.poke(last.position)
        elif first.position <= self._number + 1:
            if last.position > self._number:
                self._hand(events)
                self._follow_on()
        else:
            self._keep(events)
            self.poke(last.position)

    def _keep(self, events: Sequence[Recorded]) -> None:
        room = AHEAD_MAX - len(self._ahead)
        self._ahead.update((event.position, event) for event in events[:room])

    def _follow_on(self) -> None:
        """Deliver what was kept and follows now; forget what has been overtaken."""
        if not self._ahead:
            return
        run: list[Recorded] = []
        while (event := self._ahead.pop(self._number + 1 + len(run), None)) is not None:
            run.append(event)
        if run:
            self._hand(run)
        self._ahead = {at: event for at, event in self._ahead.items() if at > self._number}

    def _hand(self, events: Sequence[Recorded]) -> None:
        """Deliver a run without holes to each listener that has everything before it."""
        first, last = events[0].position, events[-1].position
        for place in self._places:
            if first - 1 <= place.position < last:
                self._deliver(place, events[place.position + 1 - first :])
        if first - 1 <= self._number < last:
            self._recent.extend(events[self._number + 1 - first :])
            self._number = last
        self._answer()

    def _join(self) -> None:
        """Give listeners that have almost caught up the few newest events from memory."""
        if not self._recent:
            return
        first = self._recent[0].position
        for place in self._places:
            if first - 1 <= place.position < self._number:
                self._deliver(place, list(self._recent)[place.position + 1 - first :])
        self._answer()

    def _deliver(self, place: _Place, events: Sequence[Recorded]) -> None:
        place.position = events[-1].position
        try:
            place.listener.deliver(events)
        except Exception as error:
            raise InvariantBroken(f"{type(place.listener).__name__} raised: {error!r}") from error

    def _settled(self) -> int:
        """Give the position up to which everybody was handed everything."""
        return min([self._number, *(place.position for place in self._places)])

    def _answer(self) -> None:
        if not self._waiters:
            return
        settled = self._settled()
        for waiter, position in self._waiters.items():
            if position <= settled and not waiter.done():
                waiter.set_result(None)

    def _tell(self, reachable: bool, why: str = "") -> None:
        """Log the loss and the return of the log, once each."""
        if reachable and not self._reachable:
            _log.info("log.back", position=self._number)
        elif self._reachable and not reachable:
            _log.warning("log.unavailable", position=self._number, error=why)
        self._reachable = reachable
