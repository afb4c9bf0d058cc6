"""What an agent may do on a real server that asks our call-out, and what it may not."""

import pytest
from structlog.testing import capture_logs
from tests.integration.bus.rig import DESIRED, LEASE, TOKEN, Heard, Platform

from ebbtide.chassis.bus import Entry, Message
from ebbtide.chassis.bus_nats import NatsBus
from ebbtide.contracts.errors import Conflict, NotFound, Unavailable
from ebbtide.testing.waiting import wait_until


class Seen(list[Entry]):
    async def __call__(self, entry: Entry) -> None:
        self.append(entry)


async def answering(bus: NatsBus, subject: str) -> Heard:
    heard = Heard()

    async def answer(message: Message) -> None:
        heard.append(message)
        await bus.publish(message.reply, b"yes")

    await bus.subscribe(subject, answer)
    await settled(bus)
    return heard


async def settled(bus: NatsBus) -> None:
    """Return once the server has taken all that the connection said before."""
    with pytest.raises(Unavailable):
        await bus.request("agent.main.n1.nobody-listens", b"", 5)


# What an agent may do


async def test_an_agent_is_answered_by_services(platform: Platform, agent: NatsBus) -> None:
    await answering(platform.services, "agent.main.*.report")
    assert await agent.request("agent.main.n1.report", b"", 5) == b"yes"


async def test_an_agent_answers_who_asks_its_node(platform: Platform, agent: NatsBus) -> None:
    await answering(agent, "node.main.n1.logs")
    assert await platform.services.request("node.main.n1.logs", b"", 5) == b"yes"


async def test_an_agent_hears_what_all_agents_are_told(platform: Platform, agent: NatsBus) -> None:
    heard = Heard()
    await agent.subscribe("agents.main.tell", heard)
    await settled(agent)
    await platform.services.publish("agents.main.tell", b"report again")
    await wait_until(lambda: len(heard) == 1, "the agent hears it")


async def test_an_agent_reads_its_own_desired_state(platform: Platform, agent: NatsBus) -> None:
    revision = await platform.services.kv_put(DESIRED, "n1", b"run", 0)
    assert await agent.kv_get(DESIRED, "n1") == Entry("n1", b"run", revision)


async def test_an_agent_sees_each_change_of_its_own_desired_state(
    platform: Platform, agent: NatsBus
) -> None:
    seen = Seen()
    revision = await platform.services.kv_put(DESIRED, "n1", b"1", 0)
    await agent.kv_watch(DESIRED, "n1", seen)
    await platform.services.kv_put(DESIRED, "n1", b"2", revision)
    await wait_until(lambda: len(seen) == 2, "both values")
    assert [entry.value for entry in seen] == [b"1", b"2"]


async def test_an_agent_renews_its_own_lease(agent: NatsBus) -> None:
    revision = await agent.kv_put(LEASE, "n1", b"1", 0)
    await agent.kv_put(LEASE, "n1", b"2", revision)
    entry = await agent.kv_get(LEASE, "n1")
    assert entry is not None
    assert entry.value == b"2"


async def test_an_agent_is_told_when_its_lease_was_taken(
    platform: Platform, agent: NatsBus
) -> None:
    revision = await agent.kv_put(LEASE, "n1", b"mine", 0)
    await platform.services.kv_put(LEASE, "n1", b"taken", revision)
    with pytest.raises(Conflict):
        await agent.kv_put(LEASE, "n1", b"mine", revision)


# What it may not


@pytest.mark.parametrize(
    "subject",
    [
        "agent.main.n2.report",
        "agent.other.n1.report",
        "evt.main.w.job.queued",
        "node.main.n2.logs",
        "agents.main.tell",
        "$KV.desired_main.n1",
        "$KV.lease_main.n2",
        "$JS.API.DIRECT.GET.KV_desired_main.$KV.desired_main.n2",
        "$JS.API.DIRECT.GET.KV_desired_main",
        "$JS.API.STREAM.MSG.GET.KV_desired_main",
        "$JS.API.STREAM.DELETE.KV_lease_main",
        "$JS.API.STREAM.INFO.EVT_main",
        "$JS.API.CONSUMER.CREATE.EVT_main",
        "$SYS.REQ.USER.AUTH",
    ],
)
async def test_an_agent_may_not_publish_elsewhere(
    platform: Platform, agent: NatsBus, subject: str
) -> None:
    heard = Heard()
    await platform.services.subscribe(subject, heard)
    await settled(platform.services)
    with pytest.raises(Unavailable, match="not permitted"):
        await agent.request(subject, b"", 5)
    assert heard == []


@pytest.mark.parametrize(
    "subject",
    [
        "evt.>",
        "evt.main.>",
        ">",
        "kv.desired_main.n2",
        "kv.desired_main.>",
        "kv.lease_main.n2",
        "$KV.>",
        "node.main.n2.>",
        "_INBOX.main.n2.>",
        "_INBOX.>",
        "agent.main.>",
        "$SYS.>",
    ],
)
async def test_an_agent_may_not_listen_elsewhere(
    platform: Platform, agent: NatsBus, subject: str
) -> None:
    heard = Heard()
    await agent.subscribe(subject, heard)
    await settled(agent)
    await platform.services.publish(subject.replace(">", "x.y").replace("*", "x"), b"secret")
    await settled(platform.services)
    await settled(agent)
    assert heard == []


async def test_an_agent_may_not_read_the_desired_state_of_another_node(
    platform: Platform, agent: NatsBus
) -> None:
    await platform.services.kv_put(DESIRED, "n2", b"secret", 0)
    with pytest.raises(Unavailable, match="not permitted"):
        await agent.kv_get(DESIRED, "n2")


async def test_an_agent_may_not_write_the_lease_of_another_node(
    platform: Platform, agent: NatsBus
) -> None:
    revision = await platform.services.kv_put(LEASE, "n2", b"theirs", 0)
    with pytest.raises(Unavailable, match="not permitted"):
        await agent.kv_put(LEASE, "n2", b"mine", revision)
    assert await platform.services.kv_get(LEASE, "n2") == Entry("n2", b"theirs", revision)


async def test_an_agent_may_not_write_an_event(platform: Platform, agent: NatsBus) -> None:
    await platform.services.ensure_stream("EVT_main", ["evt.main.>"], 1)
    await agent.publish("evt.main.w.job.succeeded", b"{}")
    await settled(agent)
    assert await platform.services.last("EVT_main") is None


async def test_an_agent_may_answer_a_request_only_once(platform: Platform, agent: NatsBus) -> None:
    replies = Heard()
    done: list[str] = []

    async def answer(message: Message) -> None:
        await agent.publish(message.reply, b"one")
        await agent.publish(message.reply, b"two")
        done.append(message.reply)

    await agent.subscribe("node.main.n1.logs", answer)
    await settled(agent)
    await platform.desk.subscribe("_INBOX.>", replies)
    await settled(platform.services)
    assert await platform.services.request("node.main.n1.logs", b"", 5) == b"one"
    await wait_until(lambda: len(done) == 1, "the agent has answered")
    await settled(agent)
    await settled(platform.services)
    assert [reply.data for reply in replies if reply.subject == done[0]] == [b"one"]


# Who comes in


@pytest.mark.parametrize(
    ("user", "token"),
    [
        ("n1", "ebb_agent_1_wrong"),
        ("n1", ""),
        ("n2", TOKEN),
        ("team", "ebb_member_3_team"),
        ("services", "guessed"),
    ],
)
async def test_who_has_no_right_to_the_bus_is_refused(
    platform: Platform, user: str, token: str
) -> None:
    with pytest.raises(Unavailable):
        await platform.join(token=token, user=user, wait_s=0.5)


async def test_a_wrong_token_is_never_logged(platform: Platform) -> None:
    with capture_logs() as lines, pytest.raises(Unavailable) as refusal:
        await platform.join(token="ebb_agent_1_almost", wait_s=0.5)
    told = f"{lines} {refusal.value} {platform.log.read_text()}"
    assert "almost" not in told


async def test_a_question_waits_until_the_tokens_are_read(platform: Platform) -> None:
    platform.callout.ready.clear()
    bus = await platform.join(wait_s=0)
    await settled(platform.services)
    assert platform.looked_up == 0
    platform.callout.ready.set()
    await wait_until(lambda: bus.connected, "the agent is let in")


async def test_a_connection_outlives_the_callout(platform: Platform, agent: NatsBus) -> None:
    await platform.callout.stop()
    await platform.desk.close()
    assert await agent.kv_put(LEASE, "n1", b"mine", 0) > 0


async def test_a_revoked_token_is_refused_at_the_next_connection(
    platform: Platform, agent: NatsBus
) -> None:
    platform.revoke(TOKEN)
    platform.server.kill()
    platform.server.start()
    before = platform.looked_up
    await wait_until(lambda: platform.looked_up >= before + 2, "the agent has tried twice")
    assert not agent.connected


async def test_an_agent_that_was_refused_comes_in_once_it_is_granted(platform: Platform) -> None:
    grant = platform.revoke(TOKEN)
    bus = await platform.join(wait_s=0)
    await wait_until(lambda: platform.looked_up >= 2, "the agent has tried twice")
    platform.tokens[TOKEN] = grant
    await wait_until(lambda: bus.connected, "the agent is let in")


async def test_an_agent_that_is_refused_says_so_but_not_with_what_token(
    platform: Platform,
) -> None:
    platform.revoke(TOKEN)
    with capture_logs() as lines:
        await platform.join(wait_s=0)
        said = ("Authorization", "refuses a token")
        await wait_until(lambda: any(one in str(lines) for one in said), "it is said")
    assert TOKEN not in str(lines)


async def test_a_bus_that_waits_for_nothing_tells_of_its_first_connection(
    platform: Platform,
) -> None:
    bus = await platform.join(wait_s=0)
    returns: list[str] = []

    async def returned() -> None:
        returns.append("back")

    bus.on_return(returned)
    await wait_until(lambda: returns == ["back"], "the first connection is told")


async def test_a_missing_stream_is_not_found_by_services(platform: Platform) -> None:
    with pytest.raises(NotFound):
        await platform.services.last("EVT_main")
