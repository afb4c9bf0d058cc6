"""Tokens."""

import pytest

from ebbtide.api.model import Token
from ebbtide.api.tokens import (
    ID_BYTES,
    SECRET_BYTES,
    Principal,
    adopt,
    check_subject,
    mint,
    principal_of,
    recognise,
)
from ebbtide.contracts.errors import Malformed
from ebbtide.contracts.events import TokenCreated, TokenKind
from ebbtide.contracts.ids import TokenId, Workspace
from ebbtide.contracts.seals import fingerprint
from ebbtide.testing.builders import START, job_name

RANDOM = bytes(range(ID_BYTES + SECRET_BYTES))


def _known(created: TokenCreated, *, revoked: bool = False) -> dict[TokenId, Token]:
    token = Token(
        id=created.token,
        kind=created.kind,
        subject=created.subject,
        secret_sha256=created.secret_sha256,
        created_at=START,
        revoked_at=START if revoked else None,
    )
    return {token.id: token}


def test_a_minted_token_is_recognised_and_its_secret_is_not_in_the_event() -> None:
    created, text = mint("member", "team", RANDOM)
    known = recognise(_known(created), text)
    assert known is not None
    assert known.subject == "team"
    assert text.rsplit("_", 1)[1] not in str(created)


@pytest.mark.parametrize("change", ["", "x", "ebb", "ebb_member", "a_b_c_d", "_" * 10, "é" * 50])
def test_anything_else_is_not(change: str) -> None:
    created, _ = mint("member", "team", RANDOM)
    assert recognise(_known(created), change) is None


def test_one_wrong_character_is_not() -> None:
    created, text = mint("member", "team", RANDOM)
    tokens = _known(created)
    wrong = [text[:at] + "~" + text[at + 1 :] for at in range(len(text))]
    assert [one for one in wrong if recognise(tokens, one) is not None] == []


def test_a_revoked_token_is_not() -> None:
    created, text = mint("member", "team", RANDOM)
    assert recognise(_known(created, revoked=True), text) is None


def test_too_long_a_text_is_not_even_hashed() -> None:
    assert recognise({}, "ebb_admin_x_" + "y" * 1_000_000) is None


@pytest.mark.parametrize("kind", ["agent", "job"])
def test_agents_and_jobs_have_no_business_at_the_http_door(kind: TokenKind) -> None:
    created, _ = mint(kind, "n1", RANDOM)
    assert principal_of(_known(created)[created.token]) is None


def test_what_each_kind_may_do() -> None:
    ours, theirs = Workspace("ours"), Workspace("theirs")
    admin = Principal(token=TokenId("a"), kind="admin", workspace=Workspace(""))
    member = Principal(token=TokenId("m"), kind="member", workspace=ours)
    viewer = Principal(token=TokenId("v"), kind="viewer", workspace=ours)
    assert [one.may_write for one in (admin, member, viewer)] == [True, True, False]
    assert [one.sees(ours) for one in (admin, member, viewer)] == [True, True, True]
    assert [one.sees(theirs) for one in (admin, member, viewer)] == [True, False, False]


@pytest.mark.parametrize(
    ("name", "text", "kind", "subject"),
    [
        ("admin.token", "ebb_admin_a1_s_with_underscores", "admin", ""),
        ("agent-node-1.token", "ebb_agent_a2_s", "agent", "node-1"),
    ],
)
def test_set_up_tokens_are_adopted_by_name(name: str, text: str, kind: str, subject: str) -> None:
    created = adopt(name, text)
    assert (created.kind, created.subject) == (kind, subject)
    assert created.secret_sha256 == fingerprint(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("admin.token", ""),
        ("admin.token", "ebb_admin_x"),
        ("admin.token", "ebb_king_x_y"),
        ("admin.token", "ebb_agent_x_y"),
        ("admin-x.token", "ebb_admin_x_y"),
        ("agent.token", "ebb_agent_x_y"),
        ("admin.token", "ebb_admin__y"),
        ("admin.token", "ebb_admin_x_" + "y" * 500),
    ],
)
def test_what_is_no_set_up_token_is_refused_without_showing_it(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=name) as caught:
        adopt(name, text)
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "subject", "fine"),
    [
        ("admin", "", True),
        ("admin", "x", False),
        ("member", "team", True),
        ("member", "", False),
        ("viewer", "Te am", False),
        ("agent", "node-1", True),
        ("agent", "node.1", False),
        ("job", job_name(1), True),
        ("job", "x", False),
    ],
)
def test_a_subject_must_fit_its_kind(kind: TokenKind, subject: str, fine: bool) -> None:
    if fine:
        check_subject(kind, subject, "main")
        return
    with pytest.raises(Malformed) as caught:
        check_subject(kind, subject, "main")
    assert caught.value.rejected.field == "subject"
