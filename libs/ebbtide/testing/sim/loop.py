"""An event loop whose time is virtual, and on which whole processes may be frozen.

When nothing is ready, time jumps to the next timer, so an hour costs what happens in it. Callbacks
keep the order that asyncio promises: code may rely on it, and loops in production keep it. What
differs between two seeds is when calls arrive and answers come back, which the log and the bus of
the simulation draw from the seed; that is where real processes differ, too. The loop must never
touch a file descriptor, a thread or a real clock.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from ebbtide.contracts.errors import InvariantBroken

CALLBACKS_MAX = 2_000_000
"""Callbacks of one world after which it goes round in circles; the busiest take a tenth of it."""
CLEAR_S = 60.0


class Owner:
    """Whose callbacks these are: one simulated process. While it is frozen they are kept back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.frozen = False
        self.kept_back: list[Call] = []
        self.context = contextvars.copy_context()
        self.context.run(_OWNER.set, self)

    def freeze(self) -> None:
        """Have the process do nothing from now on, as SIGSTOP does."""
        self.frozen = True

    def thaw(self, loop: "SimLoop") -> None:
        """Let it go on with all that would have been done meanwhile."""
        self.frozen = False
        kept, self.kept_back = self.kept_back, []
        loop.readmit(kept)


_OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("owner", default=None)


class Call(asyncio.TimerHandle):
    """A callback, perhaps with a time. The stdlib's is the same, and slower to make."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: "SimLoop",
        context: contextvars.Context | None,
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = contextvars.copy_context() if context is None else context
        self._cancelled = False
        self._scheduled = False
        self._repr = None
        self._source_traceback = None


class SimLoop(asyncio.BaseEventLoop):
    """The stdlib's loop but for its clock, its idling and who may run."""

    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self._calls: deque[Call] = deque()
        self._timers: list[tuple[float, int, Call]] = []
        self._made = 0
        self._virtual_s = 0.0
        self._left = CALLBACKS_MAX
        self.set_exception_handler(self._note)
        self.unhandled: list[str] = []

    def time(self) -> float:
        """Give virtual seconds since the world began."""
        return self._virtual_s

    def call_soon(  # type: ignore[override]  # a shorter way to the same
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Have a callback run after all that are ready."""
        call = Call(0.0, callback, args, self, context)
        self._calls.append(call)
        return call

    def call_at(  # type: ignore[override]  # a shorter way to the same
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Have a callback run at a time; those of one time keep their order."""
        call = Call(when, callback, args, self, context)
        self._made += 1
        heappush(self._timers, (when, self._made, call))
        return call

    def clear(self) -> None:
        """End what still runs, so that nothing of this world outlives its loop."""
        self._left = CALLBACKS_MAX
        left = asyncio.all_tasks(self)
        for task in left:
            task.cancel()
        if left:
            self.run_until_complete(asyncio.wait(left, timeout=CLEAR_S))

    def readmit(self, calls: list[Call]) -> None:
        """Run what was kept back."""
        self._calls.extend(calls)

    def _note(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.unhandled.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _run_once(self) -> None:
        """Take the timers that are due, then run what is ready; jump ahead when nothing is."""
        calls, timers = self._calls, self._timers
        while timers and timers[0][2]._cancelled:  # noqa: SLF001  # ours by inheritance
            heappop(timers)
        if not calls and not self._stopping:
            if not timers:
                raise InvariantBroken("everybody waits and no timer runs")
            self._virtual_s = max(self._virtual_s, timers[0][0])
        now_s = self._virtual_s
        while timers and timers[0][0] <= now_s:
            calls.append(heappop(timers)[2])
        self._left -= len(calls)
        if self._left < 0:
            raise InvariantBroken(f"not at rest after {CALLBACKS_MAX} callbacks")
        for _ in range(len(calls)):
            call = calls.popleft()
            if call._cancelled:  # noqa: SLF001
                continue
            owner = call._context.get(_OWNER)  # noqa: SLF001
            if owner is not None and owner.frozen:
                owner.kept_back.append(call)
            else:
                call._run()  # noqa: SLF001
