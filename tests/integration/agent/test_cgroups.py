"""Limits of workers on the cgroups of this machine, whatever version it has."""

from pathlib import Path

import pytest
from tests.integration.agent.rig import Rig, attempt, groups_of, shell

from ebbtide.agent import cgroups
from ebbtide.contracts.outcomes import EndCause
from ebbtide.testing.waiting import wait_until

EAT = "data = []\nwhile True: data.append(bytearray(1 << 20))"


@pytest.fixture(autouse=True)
def needs_limits(folder: Path) -> None:
    if not groups_of(folder / "state").known(0).oom:
        pytest.skip("no memory cgroup can be written here")


async def test_a_worker_above_its_memory_ends_as_oom_and_not_as_a_crash(rig: Rig) -> None:
    one = attempt("python", "-c", EAT, resources={"cpu": 1000, "memory": 64})
    await rig.fleet.desire(one)
    report = await rig.fleet.ended()
    assert (report.cause, report.status) == (EndCause.OOM, 9)


async def test_a_child_above_the_memory_explains_its_workers_failure(rig: Rig) -> None:
    text = f"python -c '{EAT}'; exit 1"
    await rig.fleet.desire(shell(text, resources={"cpu": 1000, "memory": 64}))
    report = await rig.fleet.ended()
    assert (report.cause, report.status) == (EndCause.OOM, 1 << 8)


async def test_the_next_worker_of_a_slot_is_not_blamed_for_the_former_ones_memory(
    rig: Rig,
) -> None:
    await rig.fleet.desire(attempt("python", "-c", EAT, resources={"cpu": 1000, "memory": 64}))
    await rig.fleet.ended()
    await wait_until(lambda: rig.slots() == [], "the slot is free again")
    await rig.fleet.desire(shell("kill -9 $$", number=2))
    report = await rig.fleet.ended(number=2)
    assert report.cause is EndCause.SIGNALLED


async def test_the_next_agent_does_not_blame_a_worker_for_a_former_ones_memory(rig: Rig) -> None:
    await rig.fleet.desire(attempt("python", "-c", EAT, resources={"cpu": 1000, "memory": 64}))
    await rig.fleet.ended()
    await wait_until(lambda: rig.slots() == [], "the slot is free again")
    await rig.restart_agent()
    await rig.fleet.desire(shell("kill -9 $$", number=2))
    assert (await rig.fleet.ended(number=2)).cause is EndCause.SIGNALLED


async def test_a_worker_gets_the_cpu_time_it_asked_for(rig: Rig) -> None:
    burn = (
        "import time\nend = time.monotonic() + 1\n"
        "while time.monotonic() < end: pass\nprint(time.process_time())"
    )
    await rig.fleet.desire(attempt("python", "-c", burn, resources={"cpu": 200, "memory": 256}))
    await rig.fleet.ended()
    assert float(rig.lines()) < 0.5


async def test_a_worker_is_born_in_the_group_of_its_sitter_and_of_nobody_else(rig: Rig) -> None:
    await rig.fleet.desire(shell("sleep 600"))
    running = await rig.fleet.running()
    members = cgroups.members(rig.group())
    assert running.pid in members
    assert len(members) <= 3  # the sitter, the shell and its sleep
