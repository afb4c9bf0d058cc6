import pytest

from ebbtide.api.callout import Grant, rights_of
from ebbtide.contracts.events import TokenKind
from ebbtide.contracts.ids import TokenId


def grant(kind: TokenKind, subject: str) -> Grant:
    return Grant(token=TokenId("1"), kind=kind, subject=subject)


def test_an_agent_may_speak_only_for_its_own_node() -> None:
    rights = rights_of(grant("agent", "n1"), "main")
    assert rights is not None
    assert rights.pub.allow == (
        "agent.main.n1.>",
        "$KV.lease_main.n1",
        "$JS.API.DIRECT.GET.KV_desired_main.$KV.desired_main.n1",
        "$JS.API.DIRECT.GET.KV_lease_main.$KV.lease_main.n1",
    )


def test_an_agent_may_hear_only_what_is_meant_for_its_node() -> None:
    rights = rights_of(grant("agent", "n1"), "main")
    assert rights is not None
    assert rights.sub.allow == (
        "kv.desired_main.n1",
        "node.main.n1.>",
        "agents.main.tell",
        "_INBOX.main.n1.>",
    )


@pytest.mark.parametrize("kind", ["admin", "member", "viewer", "job"])
def test_other_kinds_have_no_rights_on_the_bus(kind: TokenKind) -> None:
    assert rights_of(grant(kind, "team"), "main") is None


@pytest.mark.parametrize("subject", ["", "*", ">", "n1.>", "n 1", "N1", "a.b"])
def test_a_subject_that_names_no_node_gets_no_rights(subject: str) -> None:
    assert rights_of(grant("agent", subject), "main") is None
