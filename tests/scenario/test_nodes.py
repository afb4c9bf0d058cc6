"""What people say of nodes: cordoned, drained, emptied by moving, fenced."""

import pytest

from ebbtide.contracts.errors import Malformed
from ebbtide.contracts.events import AttemptStopRequested, JobRestarting, NodeChange
from ebbtide.contracts.ids import JobId
from ebbtide.testing.agents import LEASE_S
from ebbtide.testing.builders import registration, spec
from ebbtide.testing.stage import Stage

SEEDS = range(8)
FULL = "4"


async def _two_nodes(seed: int, **fields: object) -> tuple[Stage, JobId, str, str]:
    """Have a job that fills one of two nodes; give that node and the other."""
    stage = Stage(registration("n1"), registration("n2"), seed=seed)
    await stage.rest()
    job = await stage.submit(spec(cpu=FULL, **fields))
    await stage.rest()
    here = _node_of(stage, job)
    return stage, job, here, "n2" if here == "n1" else "n1"


def _node_of(stage: Stage, job: JobId) -> str:
    one = stage.job(job)
    if one is None or one.placement is None:
        return ""
    return stage.world.nodes[one.placement.places[0].node].name


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_cordoned_node_keeps_its_work_and_gets_no_more(seed: int) -> None:
    stage, job, here, other = await _two_nodes(seed)
    await stage.change(here, "cordon")
    await stage.change(other, "drain")
    await stage.rest()
    late = await stage.submit(spec(cpu="1"))
    await stage.rest()
    assert stage.job(job).running
    assert _node_of(stage, late) == ""
    await stage.change(other, "uncordon")
    await stage.rest()
    assert _node_of(stage, late) == other


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_node_whose_token_was_revoked_gets_no_work_until_it_has_another(seed: int) -> None:
    stage = Stage(registration("n1"), seed=seed)
    await stage.give_token("n1", "a")
    await stage.rest()
    await stage.revoke_token("a")
    await stage.rest()
    job = await stage.submit(spec(cpu=FULL))
    await stage.pass_time(LEASE_S)
    assert _node_of(stage, job) == "", "although its lease is still renewed"
    await stage.give_token("n1", "b")
    await stage.pass_time(LEASE_S)
    assert _node_of(stage, job) == "n1"


@pytest.mark.parametrize("seed", SEEDS)
async def test_moved_work_goes_on_elsewhere_and_uses_up_no_restart(seed: int) -> None:
    stage, job, here, other = await _two_nodes(seed)
    await stage.change(here, "move")
    await stage.pass_time(2)
    one = stage.job(job)
    assert (_node_of(stage, job), one.running, one.attempt, one.restarts) == (other, True, 2, 0)
    said = [event.body for event in stage.events]
    assert [body.reason for body in said if isinstance(body, AttemptStopRequested)] == ["drained"]
    assert [body.why for body in said if isinstance(body, JobRestarting)] == ["its node is drained"]


@pytest.mark.parametrize("seed", SEEDS)
async def test_moved_work_waits_where_there_is_no_room_elsewhere(seed: int) -> None:
    stage, job, here, _ = await _two_nodes(seed)
    await stage.submit(spec(cpu=FULL))
    await stage.rest()
    await stage.change(here, "move")
    await stage.pass_time(2)
    assert stage.job(job).stage == "waiting"
    await stage.change(here, "uncordon")
    await stage.rest()
    assert _node_of(stage, job) == here


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_job_that_fails_on_a_cordoned_node_does_not_keep_its_place(seed: int) -> None:
    stage, job, here, other = await _two_nodes(seed)
    await stage.change(here, "cordon")
    await stage.rest()
    stage.agents[here].finish(job, status=9)
    await stage.pass_time(3)
    assert _node_of(stage, job) == other


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_fence_frees_a_job_that_runs_on_when_cut_off(seed: int) -> None:
    stage, job, here, other = await _two_nodes(seed, when_cut_off="run")
    stage.agents[here].connected = False
    await stage.pass_time(3 * LEASE_S, step_s=1)
    assert _node_of(stage, job) == here, "a lost node's `run` job may still run there"
    await stage.change(here, "fence")
    await stage.pass_time(2)
    assert (_node_of(stage, job), stage.job(job).running) == (other, True)
    assert stage.agents[here].running(), "nobody has told it yet"
    stage.agents[here].connected = True
    await stage.pass_time(2)
    assert not stage.agents[here].running()
    assert (_node_of(stage, job), stage.job(job).attempt) == (other, 2)


@pytest.mark.parametrize("wishes", [("drain", "fence"), ("fence", "drain")])
async def test_of_two_wishes_at_once_a_fence_takes_none_back(
    wishes: tuple[NodeChange, ...],
) -> None:
    stage, _, here, _ = await _two_nodes(0, when_cut_off="run")
    stage.agents[here].connected = False
    await stage.pass_time(3 * LEASE_S, step_s=1)
    for wish in wishes:
        await stage.change(here, wish)
    await stage.rest()
    told = stage.world.node_named(here)
    assert (told.cordon, told.fenced_at > 0, told.wish) == ("drain", True, None)


async def test_nobody_can_vouch_for_a_node_that_answers() -> None:
    stage, _, here, _ = await _two_nodes(0)
    with pytest.raises(Malformed, match="is ready"):
        await stage.change(here, "fence")


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_fence_of_a_node_that_returns_at_that_moment_is_void(seed: int) -> None:
    stage, job, here, _ = await _two_nodes(seed, when_cut_off="run")
    stage.agents[here].connected = False
    await stage.pass_time(3 * LEASE_S, step_s=1)
    await stage.change(here, "fence")
    stage.agents[here].connected = True
    await stage.pass_time(1)
    told = stage.world.node_named(here)
    assert told.wish is None
    if not told.fenced_at:
        assert (_node_of(stage, job), stage.job(job).attempt) == (here, 1)


@pytest.mark.parametrize("seed", SEEDS)
async def test_asking_twice_is_asking_once(seed: int) -> None:
    stage, _, here, _ = await _two_nodes(seed)
    for _ in range(2):
        await stage.change(here, "drain")
        await stage.rest()
    tags = [str(event.body.__struct_config__.tag) for event in stage.events]
    assert (tags.count("node.change_requested"), tags.count("node.cordoned")) == (1, 1)
