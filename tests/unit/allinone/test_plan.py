"""What each process of a platform is given, and what is kept from it."""

from pathlib import Path

import pytest

from ebbtide.allinone.home import Home, Platform
from ebbtide.allinone.plan import AGENT, Part, Plan

NAMED = {"EBB_DATABASE_URL": "postgresql://u:p@db/x", "EBB_NATS_URL": "nats://services:p@bus:4222"}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    made.issuer_public.write_text("APUBLICKEY\n")
    return made


def platform(*, nodes: int = 1, split: bool = False, capacity: str = "") -> Platform:
    return Platform("main", 1, 2, 3, nodes=nodes, split=split, capacity=capacity)


def agents(plan: Plan) -> list[Part]:
    return [part for part in plan.nodes() if part.stage == AGENT]


def test_agents_are_given_no_password_of_the_services(home: Home) -> None:
    plan = Plan(home, platform(), {})
    given = " ".join(agents(plan)[0].child().env.values())
    assert home.secret("postgres.password") not in given
    assert home.secret("nats.password") not in given
    assert home.secret("nats-system.password") not in given


@pytest.mark.parametrize("variable", ["EBB_API_CALLOUT_SEED", "EBB_API_CALLOUT_SYSTEM_URL"])
def test_who_may_let_agents_in_and_throw_them_out_is_told_to_services_alone(
    home: Home, variable: str
) -> None:
    plan = Plan(home, platform(), {**NAMED, variable: "theirs"})
    assert plan.services()[0].child().env[variable] == "theirs"
    assert variable not in agents(plan)[0].child().env


def test_agents_are_given_no_named_server_with_its_password(home: Home) -> None:
    environment = agents(Plan(home, platform(), NAMED))[0].child().env
    assert environment["EBB_NATS_URL"] == "nats://bus:4222"
    assert "EBB_DATABASE_URL" not in environment


def test_named_servers_replace_the_embedded_ones(home: Home) -> None:
    assert Plan(home, platform(), NAMED).servers() == ()


def test_each_node_has_a_keeper_and_an_agent(home: Home) -> None:
    names = [part.name for part in Plan(home, platform(nodes=2), {}).nodes()]
    assert names == ["keeper-node-1", "agent-node-1", "keeper-node-2", "agent-node-2"]


def test_agents_and_keepers_alone_outlive_a_supervisor(home: Home) -> None:
    plan = Plan(home, platform(), {})
    assert all(part.outlives and not part.child().bound for part in plan.nodes())
    assert all(part.child().bound for part in plan.services())


def test_all_services_share_a_process_unless_split(home: Home) -> None:
    assert [part.name for part in Plan(home, platform(), {}).services()] == ["control"]
    assert len(Plan(home, platform(split=True), {}).services()) == 8


def test_declared_capacity_is_what_every_agent_claims(home: Home) -> None:
    plan = Plan(home, platform(nodes=2, capacity="gpu/h100=8"), {})
    assert [part.child().env["EBB_AGENT_CAPACITY"] for part in agents(plan)] == ["gpu/h100=8"] * 2


def test_a_server_password_is_in_no_argument(home: Home) -> None:
    plan = Plan(home, platform(), {})
    arguments = " ".join(word for part in plan.services() for word in part.child().argv)
    assert home.secret("postgres.password") not in arguments
