"""Worlds from a seed: the real services, and whatever may happen to processes, nodes and servers.

Every event passes the checks, no worker lives twice, and when the faults have ended every job comes
to its end. A seed that fails names the one command that lives it again.
"""

import os

import pytest

from ebbtide.contracts.events import JobFailed, JobSucceeded, NodeSuspected
from ebbtide.testing.sim.plan import draw, keep
from ebbtide.testing.sim.shrink import examine, shrink
from ebbtide.testing.sim.world import lived

SEED, KEEP = os.environ.get("EBB_SEED", ""), os.environ.get("EBB_KEEP", "")
SEEDS = 200
LONG_BATCHES, LONG_BATCH = 100, 50


@pytest.mark.parametrize("seed", [int(SEED)] if SEED else range(SEEDS))
def test_whatever_happens_every_job_ends_and_no_promise_is_broken(seed: int) -> None:
    examine(seed, [int(word) for word in KEEP.split(",")] if KEEP else None)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("batch", range(LONG_BATCHES))
def test_thousands_of_worlds_break_no_promise(batch: int) -> None:
    for seed in range(SEEDS + batch * LONG_BATCH, SEEDS + (batch + 1) * LONG_BATCH):
        examine(seed)


def test_where_nothing_fails_every_job_runs_to_its_own_end() -> None:
    quiet = draw(0)
    acts = [number for number, act in enumerate(quiet.acts) if act.do == "submit"]
    events = [one.body for one in lived(keep(quiet, acts)).ground.store.events]
    ended = [one.job for one in events if isinstance(one, JobSucceeded | JobFailed)]
    assert len(ended) >= len(acts) * 3 / 4, "but for gangs that fit on no nodes of this world"
    assert not [one for one in events if isinstance(one, NodeSuspected)]


def test_shrinking_leaves_only_the_acts_that_it_takes() -> None:
    plan = draw(3)
    needed = {plan.acts[4], plan.acts[7]}
    assert shrink(plan, lambda less: needed <= set(less.acts), 1_000) == [4, 7]


def test_acts_that_are_kept_stay_at_their_times() -> None:
    plan = draw(3)
    assert keep(plan, [2, 5]).acts == (plan.acts[2], plan.acts[5])
