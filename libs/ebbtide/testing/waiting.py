"""Waiting in tests: look again and again until something is true, and say what was not."""

import asyncio
from collections.abc import Awaitable, Callable

LOOK_EVERY_S = 0.005


async def wait_until(
    holds: Callable[[], bool | Awaitable[bool]], what: str, timeout_s: float = 10.0
) -> None:
    """Return once ``holds`` gives true.

    Raises:
        AssertionError: it did not within ``timeout_s``; ``what`` says what was waited for.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        held = holds()
        if held if isinstance(held, bool) else await held:
            return
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        await asyncio.sleep(LOOK_EVERY_S)
