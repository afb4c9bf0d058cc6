"""An event loop whose time is virtual, and on which whole processes may be frozen.

When nothing is ready, time jumps to the next timer, so an hour costs what happens in it. Callbacks
keep the order that asyncio promises: code may rely on it, and loops in production keep it. What
differs between two seeds is when calls arrive and answers come back, which the log and the bus of
the simulation draw from the seed; that is where real processes differ, too. The loop must never
touch a file descriptor, a thread or a real clock.
"""

import asyncio
import contextvars
import heapq
from collections import deque
from typing import Any

from ebbtide.contracts.errors import InvariantBroken

CALLBACKS_MAX = 2_000_000
"""Callbacks without any time passing, or in one world, after which it goes round in circles."""

CLEAR_S = 60.0


class Owner:
    """Whose callbacks these are: one simulated process. While it is frozen they are kept back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.frozen = False
        self.kept_back: list[asyncio.Handle] = []
        self.context = contextvars.copy_context()
        self.context.run(_OWNER.set, self)

    def freeze(self) -> None:
        """Have the process do nothing from now on, as SIGSTOP does."""
        self.frozen = True

    def thaw(self, loop: "SimLoop") -> None:
        """Let it go on with all that would have been done meanwhile."""
        self.frozen = False
        kept, self.kept_back = self.kept_back, []
        for handle in kept:
            loop.readmit(handle)


_OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("owner", default=None)


class _Nothing:
    """The selector of a loop without sockets."""

    def close(self) -> None:
        """Close nothing."""


class SimLoop(asyncio.BaseEventLoop):
    """The stdlib's loop but for its clock, its idling and who may run."""

    _ready: "deque[asyncio.Handle]"
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Nothing()
        self._virtual_s = 0.0
        self._left = CALLBACKS_MAX
        self.set_exception_handler(self._note)
        self.unhandled: list[str] = []

    def time(self) -> float:
        """Give virtual seconds since the world began."""
        return self._virtual_s

    def clear(self) -> None:
        """End what still runs, so that nothing of this world outlives its loop."""
        self._left = CALLBACKS_MAX
        left = asyncio.all_tasks(self)
        for task in left:
            task.cancel()
        if left:
            self.run_until_complete(asyncio.wait(left, timeout=CLEAR_S))

    def readmit(self, handle: asyncio.Handle) -> None:
        """Run what was kept back."""
        self._ready.append(handle)

    def _note(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.unhandled.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _run_once(self) -> None:
        """Take the timers that are due, then run what is ready; jump ahead when nothing is."""
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0]._cancelled:  # noqa: SLF001  # asyncio's own field
            heapq.heappop(scheduled)._scheduled = False  # noqa: SLF001
        if not ready:
            if not scheduled:
                raise InvariantBroken("everybody waits and no timer runs")
            self._virtual_s = max(self._virtual_s, scheduled[0].when())
        while scheduled and scheduled[0].when() <= self._virtual_s:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False  # noqa: SLF001
            ready.append(timer)
        self._left -= len(ready)
        if self._left < 0:
            raise InvariantBroken(f"not at rest after {CALLBACKS_MAX} callbacks")
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:  # noqa: SLF001
                continue
            owner = handle._context.get(_OWNER)  # noqa: SLF001
            if owner is not None and owner.frozen:
                owner.kept_back.append(handle)
            else:
                handle._run()  # noqa: SLF001

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Let cancelled timers lie until their time comes: worlds are short."""

    def _write_to_self(self) -> None:
        """Wake nobody: there are no other threads."""

    def _process_events(self, event_list: object) -> None:
        """Do nothing: there are no files."""
