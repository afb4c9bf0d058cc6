"""A seed tells one story, each time: without that, no failure could be looked at twice."""

from ebbtide.eventlog import wire
from ebbtide.testing.sim.plan import draw
from ebbtide.testing.sim.world import lived

SEED = 14


def test_a_seed_gives_the_same_history_each_time() -> None:
    first, second = (
        [wire.encode(one) for one in lived(draw(SEED)).ground.store.events] for _ in range(2)
    )
    assert first == second
