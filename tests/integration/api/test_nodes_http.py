"""Nodes at the door: look, and say what they are used for."""

import pytest

from ebbtide.contracts.envelope import Append
from ebbtide.contracts.events import NodeCordoned, NodeSuspected
from ebbtide.testing import said
from ebbtide.testing.door import RunningDoor

PATH = f"/v1/nodes/{said.NAME}/change"


@pytest.fixture
async def node(api: RunningDoor) -> RunningDoor:
    await api.say(said.joined())
    return api


def _cordoned(mode: str = "drain") -> Append:
    body = NodeCordoned(node=said.NODE, mode=mode, why="new fans")
    return Append(stream=f"node-{said.NODE}", body=body)


async def test_a_node_is_shown_with_the_jobs_on_it(node: RunningDoor) -> None:
    job = await node.submit(workspace="ours")
    await node.say(said.held(job, workers=2), said.placed(job))
    shown = (await node.ask("GET", f"/v1/nodes/{said.NAME}")).json
    assert (shown["name"], shown["reachability"], shown["jobs"]) == (said.NAME, "ready", 1)
    assert [(one["id"], one["workers"]) for one in shown["work"]] == [(job, 2)]


async def test_others_jobs_on_a_node_are_counted_and_not_named(node: RunningDoor) -> None:
    job = await node.submit(workspace="ours")
    await node.say(said.held(job), said.placed(job))
    viewer = await node.token("viewer", "theirs")
    shown = (await node.ask("GET", f"/v1/nodes/{said.NAME}", token=viewer)).json
    assert (shown["jobs"], shown["work"]) == (1, [])


async def test_a_change_is_shown_as_asked_until_it_is_made(node: RunningDoor) -> None:
    asked = await node.ask("POST", PATH, {"change": "drain", "reason": "new fans"})
    assert (asked.status, asked.json["asked"], asked.json["cordon"]) == (200, "drain", None)
    await node.say(_cordoned())
    made = (await node.ask("GET", f"/v1/nodes/{said.NAME}")).json
    assert (made["asked"], made["cordon"], made["cordon_why"]) == (None, "drain", "new fans")


async def test_a_change_that_is_made_is_not_asked_again(node: RunningDoor) -> None:
    await node.say(_cordoned())
    before = (await node.log.head()).number
    assert (await node.ask("POST", PATH, {"change": "drain"})).status == 200
    assert (await node.log.head()).number == before


async def test_a_node_is_fenced_only_when_it_is_lost(node: RunningDoor) -> None:
    refused = await node.ask("POST", PATH, {"change": "fence"})
    assert (refused.status, refused.json["code"]) == (409, "node.not_lost")
    suspected = NodeSuspected(node=said.NODE, why="silent")
    await node.say(Append(stream=f"node-{said.NODE}", body=suspected))
    assert (await node.ask("POST", PATH, {"change": "fence"})).status == 409
    await node.say(said.lost())
    assert (await node.ask("POST", PATH, {"change": "fence"})).json["asked"] == "fence"


@pytest.mark.parametrize(
    "given",
    [{}, {"change": "explode"}, {"change": 3}, {"change": "drain", "reason": "x" * 501}, {"a": 1}],
)
async def test_a_malformed_change_is_refused(node: RunningDoor, given: object) -> None:
    before = (await node.log.head()).number
    assert (await node.ask("POST", PATH, given)).status in (400, 422)
    assert (await node.log.head()).number == before


async def test_only_an_admin_changes_nodes(node: RunningDoor) -> None:
    member = await node.token("member", "ours")
    answer = await node.ask("POST", PATH, {"change": "cordon"}, token=member)
    assert (answer.status, answer.json["code"]) == (403, "auth.admin")


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/nodes/n9"), ("POST", PATH + "x")])
async def test_an_unknown_node_or_path_is_404(node: RunningDoor, method: str, path: str) -> None:
    assert (await node.ask(method, path, {"change": "cordon"})).status == 404
