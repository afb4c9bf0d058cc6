"""A revoked token's live connections are ended, and nobody else notices."""

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.integration.bus.rig import LEASE, OTHER, TOKEN, Cluster, Heard, Platform

from ebbtide.chassis.bus_nats import NatsBus
from ebbtide.contracts.errors import Unavailable
from ebbtide.testing.waiting import wait_until


@pytest.fixture
async def running(platform: Platform) -> AsyncIterator[Platform]:
    """A platform that expels whoever is revoked."""
    async with platform.expelling():
        yield platform


@pytest.fixture
async def cluster(private_folder: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(private_folder)
    await cluster.start()
    yield cluster
    await cluster.close()


async def test_a_revoked_agent_loses_its_connection_within_seconds(
    running: Platform, agent: NatsBus
) -> None:
    running.revoke(TOKEN)
    await wait_until(lambda: not agent.connected, "it is out", timeout_s=6)


async def test_a_revoked_agent_does_not_come_back(running: Platform, agent: NatsBus) -> None:
    running.revoke(TOKEN)
    asked = running.looked_up
    await wait_until(lambda: running.looked_up >= asked + 2, "it has tried twice")
    with pytest.raises(Unavailable):
        await agent.kv_put(LEASE, "n1", b"mine", 0)


async def test_another_agent_keeps_its_connection(running: Platform, agent: NatsBus) -> None:
    returns: list[str] = []

    async def returned() -> None:
        returns.append("back")

    with capture_logs() as lines:
        other = await running.join("n2", OTHER)
        other.on_return(returned)
        heard = Heard()
        await other.subscribe("node.main.n2.tell", heard)
        running.revoke(TOKEN)
        await wait_until(lambda: not agent.connected, "the revoked one is out")
        await other.kv_put(LEASE, "n2", b"mine", 0)
        await running.services.publish("node.main.n2.tell", b"still there?")
        await wait_until(lambda: len(heard) == 1, "the other hears")
    assert returns == []
    loud = {line["event"] for line in lines if line["log_level"] in ("warning", "error")}
    assert loud <= {"bus.away"}, "only the revoked one has something to say"


async def test_every_connection_of_a_revoked_token_is_ended(
    running: Platform, agent: NatsBus
) -> None:
    second = await running.join()
    running.revoke(TOKEN)
    await wait_until(lambda: not agent.connected and not second.connected, "both are out")


async def test_who_was_revoked_while_nobody_looked_is_expelled_at_the_start(
    platform: Platform, agent: NatsBus
) -> None:
    platform.revoke(TOKEN)
    async with platform.expelling():
        await wait_until(lambda: not agent.connected, "it is out")


async def test_a_connection_that_was_let_in_while_its_token_was_revoked_is_ended(
    running: Platform, agent: NatsBus
) -> None:
    grant = running.revoke(TOKEN)
    await wait_until(lambda: not agent.connected, "it is out")
    running.tokens[TOKEN] = grant  # an answer of a process that has not read of it yet
    late = await running.join()
    del running.tokens[TOKEN]
    await wait_until(lambda: not late.connected, "the late one is out")


async def test_a_server_that_was_away_is_asked_again(running: Platform, agent: NatsBus) -> None:
    running.server.signal(signal.SIGSTOP)  # connections stay, nothing is answered
    running.revoke(TOKEN)
    with capture_logs() as lines:
        await wait_until(
            lambda: any(line["event"] == "expulsion.waits" for line in lines), "it is said"
        )
    running.server.signal(signal.SIGCONT)
    await wait_until(lambda: not agent.connected, "it is out", timeout_s=20)


async def test_a_token_is_expelled_from_every_server_of_a_cluster(cluster: Cluster) -> None:
    here, there = [await cluster.platform.join(url=nats.url) for nats in cluster.servers]
    async with cluster.platform.expelling():
        cluster.platform.revoke(TOKEN)
        await wait_until(lambda: not here.connected and not there.connected, "both are out")


async def test_whoever_expels_may_do_nothing_else(platform: Platform) -> None:
    system = await NatsBus.connect(platform.server.nats.system_url, "system")
    platform.opened.append(system)
    server = json.loads(await system.request("$SYS.REQ.SERVER.PING", b"", 5))["server"]["id"]
    with pytest.raises(Unavailable, match="not permitted"):
        await system.request(f"$SYS.REQ.SERVER.{server}.RELOAD", b"", 5)
