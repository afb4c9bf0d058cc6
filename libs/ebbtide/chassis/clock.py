"""The one place where production code reads a clock or draws randomness."""

import datetime as dt
import os
import time
from typing import Protocol


class Clock(Protocol):
    """Time as the shells see it; a simulation has its own."""

    def now(self) -> dt.datetime:
        """Give the wall clock, aware, in UTC."""
        ...

    def monotonic_s(self) -> float:
        """Give seconds that never fall, of this process's machine."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> dt.datetime:
        """Give the wall clock, aware, in UTC."""
        return dt.datetime.now(dt.UTC)

    def monotonic_s(self) -> float:
        """Give seconds that never fall."""
        return time.monotonic()


def boottime_s() -> float:
    """Give seconds since boot, suspended time included: leases run on it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def millis() -> int:
    """Give Unix time in milliseconds, for new ids."""
    return time.time_ns() // 1_000_000


def random_bytes(count: int) -> bytes:
    """Draw ``count`` bytes fit for secrets and ids."""
    return os.urandom(count)
