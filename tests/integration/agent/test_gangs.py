"""Gangs over several nodes: nothing starts before the rendezvous is known."""

import socket

import msgspec
import pytest
from tests.integration.agent.rig import Rig, attempt, shell

from ebbtide.contracts.agents import WorkerState
from ebbtide.testing.waiting import wait_until


async def test_a_gang_waits_prepared_until_it_is_told_its_master(rig: Rig) -> None:
    one = shell("echo $MASTER_ADDR $MASTER_PORT $RANK $WORLD_SIZE", workers=2)
    await rig.fleet.desire(one)
    first = await rig.fleet.until(WorkerState.PREPARED, worker=0)
    second = await rig.fleet.until(WorkerState.PREPARED, worker=1)
    assert (first.port > 0, second.port) == (True, 0)
    await rig.fleet.desire(msgspec.structs.replace(one, master=f"127.0.0.1:{first.port}"))
    for worker in (0, 1):
        await rig.fleet.ended(worker=worker)
    assert rig.has_line(f"127.0.0.1 {first.port} 0 2")
    assert rig.has_line(f"127.0.0.1 {first.port} 1 2")


async def test_the_promised_port_is_held_until_its_worker_starts(rig: Rig) -> None:
    bind = "import os, socket; socket.socket().bind(('', int(os.environ['MASTER_PORT'])))"
    one = attempt("python", "-c", bind, world=2)
    await rig.fleet.desire(one)
    port = (await rig.fleet.until(WorkerState.PREPARED)).port
    with pytest.raises(OSError, match="in use"), socket.socket() as other:
        other.bind(("", port))
    await rig.fleet.desire(msgspec.structs.replace(one, master=f"127.0.0.1:{port}"))
    assert (await rig.fleet.ended()).status == 0


async def test_a_prepared_gang_is_prepared_again_by_the_next_agent(rig: Rig) -> None:
    one = shell("true", world=2)
    await rig.fleet.desire(one)
    port = (await rig.fleet.until(WorkerState.PREPARED)).port
    await rig.restart_agent()
    # Told the old port: the next agent keeps the promise of the former.
    await rig.fleet.desire(msgspec.structs.replace(one, master=f"127.0.0.1:{port}"))
    assert (await rig.fleet.ended()).status == 0


async def test_a_prepared_gang_can_be_ended(rig: Rig) -> None:
    one = shell("true", world=2)
    await rig.fleet.desire(one)
    port = (await rig.fleet.until(WorkerState.PREPARED)).port
    await rig.fleet.desire(msgspec.structs.replace(one, end="stop_requested"))
    assert (await rig.fleet.ended()).ordered
    with socket.socket() as other:
        other.bind(("", port))


async def test_workers_running_at_once_have_different_ports(rig: Rig) -> None:
    await rig.fleet.desire(*(shell("sleep 600", number=number) for number in range(8)))
    ports = {(await rig.fleet.running(number=number)).port for number in range(8)}
    assert len(ports) == 8
    await wait_until(lambda: len(rig.slots()) == 8, "all are written down")
