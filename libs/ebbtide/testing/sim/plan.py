"""What happens in a world, drawn from its seed before it begins: a list of acts, each at its time.

Times are absolute and an act names its victims by a number between 0 and 1, so any act may be left
out without moving the others: that is how a failing seed is shrunk. A seed enables only some kinds
of faults; worlds with few kinds go deeper than worlds in which everything fails at once.
"""

import random
from collections.abc import Sequence

import msgspec

HORIZON_S = 45.0
"""After this all faults end."""
JOBS, FEW = (10, 40), (4, 12)
FAULTS = (4, 16)


class Act(msgspec.Struct, frozen=True):
    """Something happens to ``who`` at ``at_s``, for ``for_s`` seconds; ``much`` says how bad.

    ``number`` is its place in the whole plan: a job keeps its name when other acts are left out.
    """

    at_s: float
    do: str
    who: float = 0.0
    for_s: float = 0.0
    much: float = 0.0
    number: int = 0

    def __str__(self) -> str:
        return f"{self.at_s:6.2f} {self.do:<14} {self.who:.3f} {self.for_s:6.2f} s {self.much:.3f}"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A whole world: its make, and what happens in it."""

    seed: int
    nodes: int
    split: bool
    twins: bool
    acts: tuple[Act, ...]


LENGTHS: dict[str, tuple[float, float]] = {
    "kill": (0.1, 6.0),
    "freeze": (0.1, 14.0),
    "cut": (0.1, 14.0),
    "jump_clock": (1.0, 20.0),
    "kill_agent": (0.1, 6.0),
    "freeze_agent": (0.5, 14.0),
    "cut_agent": (0.5, 25.0),
    "lose_power": (0.5, 25.0),
    "bad_network": (1.0, 15.0),
    "slow_network": (1.0, 15.0),
    "slow_store": (1.0, 10.0),
    "lossy_store": (0.5, 6.0),
    "store_away": (0.2, 10.0),
    "bus_away": (0.2, 15.0),
    "empty_bus": (0.1, 2.0),
    "fail_over": (0.1, 2.0),
}
"""Every kind of fault, with its shortest and longest time. A quarter of lost nodes never return."""
LONG = 1.0
"""How much of a job is one that lives long, on any node, and ends with that node's lease."""
WOUNDED = 0.15
"""The share of worlds with a node that is cut off at the worst moment."""
SUSPENSE_S = 1.5
"""Faults that follow each other closely do so within this: most trouble is made by two at once."""


def draw(seed: int) -> Plan:
    """Draw the world of a seed."""
    dice = random.Random(f"plan {seed}")  # noqa: S311  # repeatable on purpose
    kinds = dice.sample(sorted(LENGTHS), dice.randint(2, len(LENGTHS)))
    is_wounded = dice.random() < WOUNDED
    jobs = dice.randint(*(FEW if is_wounded else JOBS))
    acts = [Act(dice.uniform(0, HORIZON_S), "submit") for _ in range(jobs)]
    acts += [
        Act(dice.uniform(0, HORIZON_S), "stop", dice.random()) for _ in range(dice.randint(0, 4))
    ]
    acts += _wounded(dice) if is_wounded else _faults(dice, kinds)
    return Plan(
        seed=seed,
        nodes=dice.randint(2, 4),
        split=dice.random() < 0.6,
        twins=dice.random() < 0.3,
        acts=tuple(
            msgspec.structs.replace(act, number=number)
            for number, act in enumerate(sorted(acts, key=lambda act: act.at_s))
        ),
    )


def _faults(dice: random.Random, kinds: Sequence[str]) -> list[Act]:
    faults: list[Act] = []
    at_s, who = dice.uniform(1, HORIZON_S), dice.random()
    for _ in range(dice.randint(*FAULTS)):
        if dice.random() < 0.5:
            at_s = min(at_s + dice.uniform(0, SUSPENSE_S), HORIZON_S)
        else:
            at_s = dice.uniform(1, HORIZON_S)
        if dice.random() < 0.5:
            who = dice.random()
        kind = dice.choice(kinds)
        faults.append(Act(at_s, kind, who, dice.uniform(*LENGTHS[kind]), dice.random()))
    return faults


def _wounded(dice: random.Random) -> list[Act]:
    """A node that is cut off just after it has heard, late, that its lease was renewed.

    Chance alone makes this too rarely, and it is what leases are for. Jobs that live long and end
    with the lease are there to show it.
    """
    at_s, who = dice.uniform(2, HORIZON_S - 25), dice.random()
    slow_s, late_s = dice.uniform(1, 4), dice.uniform(3, 5)
    cut_s = at_s + slow_s + late_s + dice.uniform(0, 1)
    return [
        *(Act(at_s - dice.random(), "submit", much=LONG) for _ in range(4)),
        Act(at_s, "slow_network", who, slow_s + late_s, 0.8),
        Act(at_s + slow_s, "freeze_agent", who, late_s),
        Act(cut_s, "cut_agent", who, dice.uniform(12, 25)),
    ]


def keep(plan: Plan, numbers: Sequence[int]) -> Plan:
    """Give a plan with only some of its acts."""
    return msgspec.structs.replace(plan, acts=tuple(plan.acts[number] for number in numbers))
