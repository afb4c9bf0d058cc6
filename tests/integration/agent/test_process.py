"""The agent as a process on a real bus: killed with -9 and started again."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.integration.agent.rig import NODE, Fleet, Keeper, end_sitters, lives, shell

from ebbtide.chassis.bus_nats import NatsBus
from ebbtide.testing.servers import NatsServer
from ebbtide.testing.waiting import wait_until


class Agent:
    """The agent's process."""

    def __init__(self, environ: dict[str, str]) -> None:
        self._environ = environ
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = self.launch()

    def launch(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-m", "ebbtide.agent"], env=self._environ)

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


def agent_environ(state: Path, nats_url: str, cell: str) -> dict[str, str]:
    return {
        **os.environ,
        "EBB_CELL": cell,
        "EBB_NATS_URL": nats_url,
        "EBB_STORE": str(state.parent / "store"),
        "EBB_AGENT_STATE": str(state),
        "EBB_AGENT_NODE": NODE,
        "EBB_AGENT_CAPACITY": "cpu=4,memory=4Gi",
    }


@pytest.fixture
async def fleet(nats_url: str, cell: str) -> AsyncIterator[Fleet]:
    bus = await NatsBus.connect(nats_url, name="fleet")
    made = Fleet(bus, cell)
    await made.open()
    yield made
    await bus.close()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"
    end_sitters(tmp_path / "state")


@pytest.fixture
def keeper(state: Path) -> Iterator[Keeper]:
    made = Keeper(state)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def agent(state: Path, nats_url: str, cell: str, keeper: Keeper) -> Iterator[Agent]:
    made = Agent(agent_environ(state, nats_url, cell))
    made.start()
    yield made
    made.kill()


def let_go(state: Path) -> None:
    next((state / "workers").glob("*/work")).joinpath("go").touch()


async def test_a_killed_agents_workers_go_on_and_the_next_one_reports_their_end(
    fleet: Fleet, agent: Agent, state: Path
) -> None:
    await fleet.desire(shell("while [ ! -e go ]; do sleep 0.01; done; exit 5"))
    before = await fleet.running()
    agent.kill()
    assert lives(before.pid)
    heard = len(fleet.heard)
    agent.start()
    await wait_until(lambda: len(fleet.heard) > heard, "the next agent has reported")
    assert (await fleet.running()).pid == before.pid
    let_go(state)
    assert (await fleet.ended()).status == 5 << 8


async def test_agent_and_keeper_killed_with_a_worker_ending_meanwhile_lose_nothing(
    fleet: Fleet, agent: Agent, keeper: Keeper, state: Path
) -> None:
    await fleet.desire(shell("while [ ! -e go ]; do sleep 0.01; done; exit 5"))
    running = await fleet.running()
    agent.kill()
    keeper.kill()
    let_go(state)
    await wait_until(lambda: not lives(running.pid), "the worker has ended")
    keeper.start()
    agent.start()
    assert (await fleet.ended()).status == 5 << 8


async def test_an_agent_killed_amid_many_starts_runs_each_worker_once(
    fleet: Fleet, agent: Agent, state: Path
) -> None:
    count = 60
    ran = state.parent / "ran"
    await fleet.desire(*(shell(f"echo {n} >> {ran}", number=n) for n in range(count)))
    await wait_until(ran.exists, "the first has run")
    agent.kill()
    agent.start()
    for number in range(count):
        await fleet.ended(number=number)
    assert sorted(ran.read_text().split(), key=int) == [str(n) for n in range(count)]


async def test_a_second_agent_on_the_same_state_gives_up_with_its_own_status(
    fleet: Fleet, agent: Agent
) -> None:
    await wait_until(lambda: fleet.registered > 0, "the first one runs")
    assert agent.launch().wait(timeout=20) == 75


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("EBB_AGENT_STATE", ""),
        ("EBB_AGENT_NODE", ""),
        ("EBB_AGENT_NODE", "No Name"),
        ("EBB_AGENT_CAPACITY", "cpu=many"),
        ("EBB_AGENT_CAPACITY", "gpu=1000"),
        ("EBB_NATS_URL", "nats://u:secretword@h:port"),
        ("EBB_LEASE_S", "soon"),
    ],
)
def test_a_setting_that_cannot_be_right_ends_the_agent_for_good(
    nats_url: str, tmp_path: Path, variable: str, text: str
) -> None:
    environ = agent_environ(tmp_path, nats_url, "main") | {variable: text}
    command = [sys.executable, "-m", "ebbtide.agent"]
    done = subprocess.run(command, env=environ, capture_output=True, timeout=20, check=False)
    assert done.returncode == 78
    assert variable.encode() in done.stderr
    assert b"secretword" not in done.stderr


async def test_a_bus_that_is_away_at_the_start_is_waited_for(
    private_nats: NatsServer, state: Path, keeper: Keeper
) -> None:
    private_nats.kill()
    agent = Agent(agent_environ(state, private_nats.url, "main"))
    agent.start()
    try:
        await wait_until((state / "lease").exists, "it is up")
        private_nats.start()
        bus = await NatsBus.connect(private_nats.url, name="fleet")
        fleet = Fleet(bus, "main")
        await fleet.open()
        await wait_until(lambda: fleet.registered > 0, "it has found the bus")
        await bus.close()
    finally:
        agent.kill()


async def test_a_second_keeper_on_the_same_state_gives_up(state: Path, keeper: Keeper) -> None:
    await wait_until((state / "keeper.sock").exists, "the first one runs")
    second = Keeper(state)
    second.start()
    assert second.process is not None
    assert second.process.wait(timeout=20) == 75
