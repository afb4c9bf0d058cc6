"""From a failing seed to the few acts that it takes, and to one command that lives them again.

Source: Zeller and Hildebrandt 2002, Simplifying and Isolating Failure-Inducing Input (ddmin). We
stop after a number of tries instead of at a minimum: a person reads the rest.
"""

import re
from collections.abc import Callable, Sequence

from ebbtide.testing.sim.plan import Plan, draw, keep
from ebbtide.testing.sim.world import run

TRIES = 60
NOTE = "live it again by EBB_SEED={seed} EBB_KEEP={kept} pytest tests/simulation/test_world.py"


def examine(seed: int, kept: Sequence[int] | None = None) -> int:
    """Live the world of a seed, or some acts of it; give how many jobs it had.

    Raises:
        Exception: what went wrong, with the command that shows it and the acts that it takes.
    """
    plan = draw(seed)
    if kept is not None:
        return run(keep(plan, kept))
    try:
        return run(plan)
    except Exception as error:
        numbers = shrink(plan, _like(error), TRIES)
        error.add_note(NOTE.format(seed=seed, kept=",".join(map(str, numbers))))
        for number in numbers:
            error.add_note(f"  {number:3} {plan.acts[number]}")
        raise


def shrink(plan: Plan, fails: Callable[[Plan], bool], tries: int) -> list[int]:
    """Give the numbers of acts that still fail, after leaving out all that could be within tries.

    Ever smaller runs of acts are left out, one at a time, as long as what is left fails.
    """
    left = list(range(len(plan.acts)))
    size = len(left) // 2
    while size and tries:
        at = 0
        while at < len(left) and tries:
            tries -= 1
            fewer = left[:at] + left[at + size :]
            if fails(keep(plan, fewer)):
                left = fewer
            else:
                at += size
        size //= 2
    return left


def _like(error: Exception) -> Callable[[Plan], bool]:
    """Say of a plan whether it fails in the same way, whatever the numbers in the message."""
    wanted = _kind(error)

    def fails(plan: Plan) -> bool:
        try:
            run(plan)
        except Exception as other:  # noqa: BLE001  # any failure is an answer here
            return _kind(other) == wanted
        return False

    return fails


def _kind(error: Exception) -> tuple[str, str]:
    return type(error).__name__, re.sub(r"\W*(job_\w+|\d+)", "", str(error))[:40]
