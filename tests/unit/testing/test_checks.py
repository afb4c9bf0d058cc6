"""The checks judge a placement by what its node has then, not by what it had at first."""

import msgspec
import pytest

from ebbtide.contracts.events import NodeJoined
from ebbtide.testing.builders import registration, spec
from ebbtide.testing.checks import PromiseBroken, check_log
from ebbtide.testing.stage import Stage


async def test_a_node_that_has_grown_may_hold_more() -> None:
    stage = Stage(registration("n1", cpu=2000))
    await stage.rest()
    stage.agents["n1"].registration = registration("n1", boot="boot-2", cpu=8000)
    await stage.rest()
    job = await stage.submit(spec(cpu="6"))
    await stage.rest()
    assert stage.job(job).running


async def test_a_node_that_has_shrunk_may_not_hold_what_it_could() -> None:
    stage = Stage(registration("n1", cpu=2000))
    await stage.rest()
    stage.agents["n1"].registration = registration("n1", boot="boot-2", cpu=8000)
    await stage.rest()
    await stage.submit(spec(cpu="6"))
    await stage.rest()
    first, second = (one for one in stage.events if isinstance(one.body, NodeJoined))
    bodies = {first.position: second.body, second.position: first.body}
    swapped = [
        msgspec.structs.replace(one, body=bodies.get(one.position, one.body))
        for one in stage.events
    ]
    with pytest.raises(PromiseBroken, match="over-committed"):
        check_log(swapped, ended=False)
