"""Whatever dies, workers go on, their ends are known, and nothing runs twice."""

import os
import signal
from pathlib import Path

import pytest
from tests.integration.agent.rig import Rig, lives, shell, sitters_of

from ebbtide.agent.node import Busy, Node
from ebbtide.contracts.agents import Desired, WorkerState
from ebbtide.contracts.outcomes import EndCause
from ebbtide.testing.waiting import wait_until


async def test_a_running_worker_is_adopted_by_the_next_agent(rig: Rig) -> None:
    one = shell("while [ ! -e go ]; do sleep 0.01; done; exit 5")
    await rig.fleet.desire(one)
    before = await rig.fleet.running()
    await rig.restart_agent()
    await wait_until(lambda: len(rig.fleet.heard) > 1, "the next agent has reported")
    assert (await rig.fleet.running()).pid == before.pid
    rig.let_go()
    assert (await rig.fleet.ended()).status == 5 << 8


async def test_an_end_during_the_agents_absence_is_reported_by_the_next(rig: Rig) -> None:
    await rig.fleet.desire(shell("while [ ! -e go ]; do sleep 0.01; done; exit 5"))
    running = await rig.fleet.running()
    await rig.stop_agent()
    rig.let_go()
    await wait_until(lambda: not lives(running.pid), "the worker has ended")
    rig.start_agent()
    assert (await rig.fleet.ended()).status == 5 << 8


async def test_a_killed_keeper_leaves_its_workers_running_and_their_ends_known(rig: Rig) -> None:
    await rig.fleet.desire(shell("while [ ! -e go ]; do sleep 0.01; done; exit 5"))
    await rig.fleet.running()
    rig.keeper.kill()
    rig.let_go()
    assert (await rig.fleet.ended()).status == 5 << 8


async def test_a_new_keeper_serves_although_sitters_of_the_former_live(rig: Rig) -> None:
    await rig.fleet.desire(shell("sleep 600"))
    await rig.fleet.running()
    rig.keeper.kill()
    rig.keeper.start()
    await rig.fleet.desire(*(shell("true", number=number) for number in (2, 3, 4)))
    for number in (2, 3, 4):
        assert (await rig.fleet.ended(number=number)).status == 0


async def test_a_killed_sitter_takes_its_worker_along_and_the_end_reads_lost(rig: Rig) -> None:
    await rig.fleet.desire(shell("sleep 600 & setsid sleep 600 & wait"))
    await rig.fleet.running()
    marked = processes_of(rig)
    os.kill(sitters_of(rig.state)[0], signal.SIGKILL)
    report = await rig.fleet.ended()
    assert report.cause is EndCause.LOST
    assert report.status is None
    assert len(marked) >= 1
    assert not processes_of(rig), "its children are gone too"


def processes_of(rig: Rig) -> list[int]:
    """Name every process that a worker of this node has left, by the environment it inherited."""
    mark = f"EBB_SOCKET={rig.state}/".encode()
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if mark in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


async def test_a_sitter_killed_while_nobody_looks_reads_lost_too(rig: Rig) -> None:
    await rig.fleet.desire(shell("sleep 600 & wait"))
    await rig.fleet.running()
    pid = sitters_of(rig.state)[0]
    await rig.stop_agent()
    assert len(processes_of(rig)) >= 1
    os.kill(pid, signal.SIGKILL)
    await wait_until(lambda: not processes_of(rig), "the worker's group died with it")
    rig.start_agent()
    assert (await rig.fleet.ended()).cause is EndCause.LOST


async def test_a_killed_idle_sitter_is_no_loss(rig: Rig) -> None:
    await rig.fleet.desire(shell("sleep 600"))
    await rig.fleet.running()
    busy = set(sitters_of(rig.state))
    for pid in rig.sitters() - busy:
        os.kill(pid, signal.SIGKILL)
    await rig.fleet.desire(shell("true", number=2))
    assert (await rig.fleet.ended(number=2)).status == 0


async def test_what_was_settled_is_reported_again_on_a_new_epoch(rig: Rig) -> None:
    one = shell("exit 1")
    await rig.fleet.desire(one)
    await rig.fleet.ended()
    await wait_until(lambda: rig.slots() == [], "only a tombstone is left")
    rig.fleet.newest.clear()
    rig.fleet.epoch, rig.fleet.position = 2, 0
    await rig.fleet.write(Desired(epoch=2, position=1, attempts=()))
    assert (await rig.fleet.ended()).status == 1 << 8


async def test_an_end_is_said_again_until_it_is_settled(rig: Rig) -> None:
    rig.fleet.deaf = True
    await rig.fleet.desire(shell("exit 1"))
    await rig.fleet.ended()
    heard = len(rig.fleet.heard)
    await rig.restart_agent()
    await wait_until(lambda: len(rig.fleet.heard) > heard, "it is said again")
    rig.fleet.deaf = False
    await rig.restart_agent()
    await wait_until(lambda: rig.slots() == [], "settled at last")


async def test_a_second_agent_on_the_same_state_is_refused(rig: Rig) -> None:
    with pytest.raises(Busy):
        Node(rig.facts(), rig.server.connect("n2"))


async def test_a_worker_runs_on_while_the_bus_is_away(rig: Rig) -> None:
    await rig.fleet.desire(shell("while [ ! -e go ]; do sleep 0.01; done; exit 5"))
    await rig.fleet.running()
    rig.bus.cut()
    rig.let_go()
    await wait_until(
        lambda: b"\nE " in (rig.state / "lives").read_bytes(), "the end is on the disk"
    )
    assert rig.fleet.state() is WorkerState.RUNNING
    rig.bus.restore()
    assert (await rig.fleet.ended()).status == 5 << 8


async def test_the_node_registers_again_after_a_restart(rig: Rig) -> None:
    await wait_until(lambda: rig.fleet.registered == 1, "it has registered")
    await rig.restart_agent()
    await wait_until(lambda: rig.fleet.registered == 2, "it has registered again")
