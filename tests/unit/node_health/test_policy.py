"""Verdicts on nodes: suspect, taken, lost, returned; and no verdict without having seen enough."""

import datetime as dt

import msgspec
import pytest

from ebbtide.contracts.agents import Lease
from ebbtide.contracts.envelope import Append
from ebbtide.contracts.events import NodeFenced, NodeLost, NodeReturned, NodeSuspected
from ebbtide.contracts.events.token import TokenCreated, TokenKind, TokenRevoked
from ebbtide.contracts.ids import NodeName, NodeNumber, PoolName, TokenId
from ebbtide.model.node import Node, Reachability
from ebbtide.node_health import CARD
from ebbtide.node_health.model import Picture, Seen, Sight
from ebbtide.node_health.policy import Limits, decide
from ebbtide.testing.builders import recorded

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
LIMITS = Limits(lease_s=60, margin_s=6)
N1 = NodeName("n1")


def _picture(reachability: Reachability) -> Picture:
    node = Node(
        number=NodeNumber(1),
        name=N1,
        pool=PoolName("default"),
        address="",
        boot="",
        capacity={},
        version=1,
        reachability=reachability,
    )
    return Picture(nodes={node.number: node})


def _seen(at_s: float, *, revision: int = 1, taken: bool = False, lease_ms: int = 0) -> Seen:
    lease = Lease(node=N1, boot="", holder="", count=0, lease_ms=lease_ms, taken=taken)
    return Seen(revision=revision, lease=lease, at_s=at_s)


def _verdict(reachability: Reachability, sight: Sight, now_s: float) -> tuple[type | None, bool]:
    verdicts = decide(_picture(reachability), sight, LIMITS, now_s, NOW)
    kinds = [type(append.body) for unit in verdicts.decision.units for append in unit.appends]
    return (kinds[0] if kinds else None), bool(verdicts.take)


def test_a_node_that_renews_is_left_alone() -> None:
    assert _verdict("ready", Sight(leases={N1: _seen(100)}), 140) == (None, False)


def _token(token: str, kind: TokenKind = "agent") -> Append:
    body = TokenCreated(token=TokenId(token), kind=kind, subject=N1, secret_sha256="")
    return Append(stream=f"token-{token}", body=body)


def _revoked(token: str) -> Append:
    return Append(stream=f"token-{token}", body=TokenRevoked(token=TokenId(token)))


def _told(reachability: Reachability, *appends: Append) -> Picture:
    picture = _picture(reachability)
    for append in appends:
        picture.apply(recorded(append))
    return msgspec.msgpack.decode(msgspec.msgpack.encode(picture), type=Picture)


def _said(picture: Picture, sight: Sight, now_s: float) -> list[object]:
    verdicts = decide(picture, sight, LIMITS, now_s, NOW)
    return [append.body for unit in verdicts.decision.units for append in unit.appends]


RENEWS = Sight(leases={N1: _seen(100)})


def test_a_node_whose_token_was_revoked_is_suspect_at_once() -> None:
    picture = _told("ready", _token("a"), _revoked("a"))
    why = "its token was revoked"
    assert _said(picture, RENEWS, 101) == [NodeSuspected(node=NodeNumber(1), why=why)]


@pytest.mark.parametrize(
    "story",
    [
        [],
        [_token("a")],
        [_token("a"), _token("b"), _revoked("a")],
        [_token("a"), _revoked("a"), _token("b")],
        [_token("a"), _token("m", "member"), _revoked("m")],
        [_token("m", "member"), _revoked("m")],
    ],
    ids=["none", "one", "another", "a_new_one", "no_agents", "never_any"],
)
def test_a_node_with_a_token_left_or_without_any_is_left_alone(story: list[Append]) -> None:
    assert _said(_told("ready", *story), RENEWS, 101) == []


@pytest.mark.parametrize("reachability", ["suspect", "lost"])
def test_a_node_does_not_return_by_a_renewal_after_its_token_was_revoked(
    reachability: Reachability,
) -> None:
    sight = Sight(since_s=50, leases={N1: _seen(100)})
    assert _said(_told(reachability, _token("a"), _revoked("a")), sight, 101) == []


def test_a_node_returns_with_a_new_token() -> None:
    sight = Sight(since_s=50, leases={N1: _seen(100)})
    picture = _told("suspect", _token("a"), _revoked("a"), _token("b"))
    assert _said(picture, sight, 101) == [NodeReturned(node=NodeNumber(1))]


def test_a_node_whose_token_was_revoked_is_lost_when_its_lease_was_taken() -> None:
    sight = Sight(leases={N1: _seen(100)}, took={N1: 2})
    [said] = _said(_told("suspect", _token("a"), _revoked("a")), sight, 167)
    assert isinstance(said, NodeLost)


def test_node_health_hears_of_tokens() -> None:
    assert "token-a".startswith(CARD.reads)


def test_a_node_that_missed_two_renewals_is_suspect() -> None:
    assert _verdict("ready", Sight(leases={N1: _seen(100)}), 144) == (NodeSuspected, False)


def test_a_lease_is_taken_only_after_a_whole_lease_of_silence() -> None:
    sight = Sight(leases={N1: _seen(100)})
    assert _verdict("suspect", sight, 160) == (None, False)
    assert _verdict("suspect", sight, 161) == (None, True)


def test_a_node_is_lost_only_when_its_lease_was_taken_and_the_margin_has_passed() -> None:
    sight = Sight(leases={N1: _seen(100)}, took={N1: 2})
    assert _verdict("suspect", sight, 166)[0] is None
    assert _verdict("suspect", sight, 167)[0] is NodeLost


def test_the_margin_passes_after_the_lease_was_taken_however_long_this_process_has_seen() -> None:
    sight = Sight(since_s=0, leases={N1: _seen(1000)}, took={N1: 2})
    sight.see(N1, _seen(1061, revision=2, taken=True))
    assert _verdict("suspect", sight, 1066)[0] is None
    assert _verdict("suspect", sight, 1067)[0] is NodeLost


def test_silence_before_a_start_that_finds_a_taken_lease_is_not_counted() -> None:
    sight = Sight(since_s=1000, took={N1: 2})
    sight.see(N1, _seen(1030, revision=2, taken=True))
    assert _verdict("suspect", sight, 1066)[0] is None
    assert _verdict("suspect", sight, 1067)[0] is NodeLost


def test_a_node_whose_lease_could_not_be_taken_is_not_lost() -> None:
    assert _verdict("suspect", Sight(leases={N1: _seen(100)}), 10_000) == (None, True)


def test_silence_is_counted_from_when_this_process_began_to_see() -> None:
    sight = Sight(since_s=1000, leases={N1: _seen(100)})
    assert _verdict("ready", sight, 1010) == (None, False)
    assert _verdict("ready", sight, 1044) == (NodeSuspected, False)


@pytest.mark.parametrize("reachability", ["suspect", "lost"])
def test_a_fresh_renewal_brings_a_node_back(reachability: Reachability) -> None:
    sight = Sight(since_s=50, leases={N1: _seen(100)})
    assert _verdict(reachability, sight, 101) == (NodeReturned, False)


def test_an_old_value_seen_at_the_start_proves_nothing() -> None:
    sight = Sight(since_s=100, leases={N1: _seen(100)})
    assert _verdict("lost", sight, 101) == (None, False)


def test_the_value_that_a_start_finds_proves_nothing_however_late_it_is_read() -> None:
    sight = Sight(since_s=100)
    sight.see(N1, _seen(103))
    assert _verdict("suspect", sight, 104) == (None, False)
    sight.see(N1, _seen(105, revision=2))
    assert _verdict("suspect", sight, 106) == (NodeReturned, False)


def test_a_renewal_in_a_bucket_that_was_made_anew_counts() -> None:
    sight = Sight(leases={N1: _seen(100, revision=5000)})
    sight.see(N1, _seen(150, revision=1))
    assert _verdict("suspect", sight, 151) == (NodeReturned, False)


def test_a_value_delivered_again_is_no_renewal() -> None:
    sight = Sight(leases={N1: _seen(100)})
    sight.see(N1, _seen(200))
    assert sight.leases[N1].at_s == 100


def test_a_renewal_after_the_lease_was_taken_undoes_the_taking() -> None:
    sight = Sight(leases={N1: _seen(100)}, took={N1: 2})
    sight.see(N1, _seen(200, revision=3))
    assert sight.took == {}


def test_taking_a_lease_is_no_reason_to_forget_when_it_was_renewed() -> None:
    sight = Sight(since_s=10, leases={N1: _seen(100)})
    sight.see(N1, _seen(161, revision=2, taken=True))
    sight.took[N1] = 2
    assert _verdict("suspect", sight, 166)[0] is None
    assert _verdict("suspect", sight, 167)[0] is NodeLost


def test_another_value_at_the_same_revision_is_of_a_bucket_that_was_made_anew() -> None:
    sight = Sight(leases={N1: _seen(100, revision=3)})
    sight.see(N1, _seen(150, revision=3, lease_ms=5))
    assert sight.leases[N1].at_s == 150


def test_a_node_that_has_just_joined_has_a_whole_lease_to_show_itself() -> None:
    sight = Sight(since_s=0)
    sight.meet([N1], 10_000)
    assert _verdict("ready", sight, 10_040) == (None, False)
    sight.meet([N1], 10_044)
    assert _verdict("ready", sight, 10_044) == (NodeSuspected, False)


@pytest.mark.parametrize("taken", [False, True])
def test_a_lease_that_its_agent_counts_on_for_longer_is_waited_for(taken: bool) -> None:
    seen = _seen(0, lease_ms=600_000, taken=taken)
    sight = Sight(leases={N1: seen}, took={N1: 2})
    assert _verdict("suspect", sight, 606)[0] is None
    assert _verdict("suspect", sight, 607)[0] is NodeLost


def test_a_lease_is_not_taken_while_its_agent_may_count_on_it() -> None:
    sight = Sight(leases={N1: _seen(0, lease_ms=600_000)})
    assert _verdict("suspect", sight, 599) == (None, False)
    assert _verdict("suspect", sight, 601) == (None, True)


@pytest.mark.parametrize(
    ("sight", "said"), [(Sight(leases={N1: _seen(100)}), NodeReturned), (Sight(), NodeFenced)]
)
def test_a_fence_is_done_only_while_the_node_is_silent(sight: Sight, said: type) -> None:
    """Who runs on at its own word must not have its work started elsewhere meanwhile."""
    picture = _picture("lost")
    picture.nodes[NodeNumber(1)] = msgspec.structs.replace(
        picture.nodes[NodeNumber(1)], fence_asked=True
    )
    units = decide(picture, sight, LIMITS, 140, NOW).decision.units
    assert [type(append.body) for unit in units for append in unit.appends] == [said]
