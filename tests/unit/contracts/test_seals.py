"""Orders are taken only from who knows the agent's token."""

import pytest

from ebbtide.contracts.errors import Malformed
from ebbtide.contracts.ids import TokenId
from ebbtide.contracts.seals import body_of, check, fingerprint, seal, tokens_of, unseal

TOKEN, OTHER = "ebb_agent_a1_secret", "ebb_agent_b2_secret"
KEYS = {TokenId("a1"): fingerprint(TOKEN)}
BODY = b'{"epoch":1}'


def test_what_is_sealed_for_an_agent_is_opened_with_its_token() -> None:
    value = seal("n1", BODY, {**KEYS, TokenId("b2"): fingerprint(OTHER)})
    assert unseal("n1", value, TOKEN) == unseal("n1", value, OTHER) == BODY
    assert tokens_of(value) == {"a1", "b2"}


@pytest.mark.parametrize(
    "value",
    [
        BODY,
        b"{}\n" + BODY,
        b'{"a1":""}\n' + BODY,
        b'{"a1":"0"}\n' + BODY,
        b"no json\n" + BODY,
        b'{"a1":3}\n' + BODY,
        b"",
        seal("n1", BODY, {TokenId("a1"): fingerprint(OTHER)}),
        seal("n2", BODY, KEYS),
        seal("n1", BODY, KEYS) + b" ",
        seal("n1", BODY, KEYS).replace(b"1}", b"2}"),
    ],
)
def test_what_is_not_sealed_for_it_is_refused(value: bytes) -> None:
    with pytest.raises(Malformed):
        unseal("n1", value, TOKEN)
    with pytest.raises(Malformed):
        check("n1", value, KEYS)


@pytest.mark.parametrize("token", ["", "a password of somebody else's server"])
def test_an_agent_without_a_token_of_ours_takes_what_its_server_gives(token: str) -> None:
    assert unseal("n1", BODY, token) == BODY
    assert unseal("n1", seal("n1", BODY, {}), token) == BODY
    check("n1", seal("n1", BODY, {}), {})


def test_a_body_may_have_lines() -> None:
    assert body_of(seal("n1", b"a\nb", KEYS)) == b"a\nb"
