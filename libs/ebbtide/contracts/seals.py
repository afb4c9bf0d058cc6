"""Proof that an order for a node comes from a service.

NATS lets a client name any subject for the server's own answer, and some answers hold what the
client once wrote. So an agent could have the server write orders for another node, and takes none
that does not carry a seal under its own token: a line of JSON (token id to seal) before the body.
The key is the token's fingerprint, which the services know and no other agent does.
"""

import hashlib
import hmac
from collections.abc import Mapping

import msgspec

from ebbtide.contracts.errors import Malformed, Rejected
from ebbtide.contracts.ids import NodeName, TokenId

AGENTS = "ebb_agent_"
_decode = msgspec.json.Decoder(dict[TokenId, str]).decode


def fingerprint(token: str) -> str:
    """Give the hash (SHA-256, hexadecimal) under which the platform remembers a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def seal(node: NodeName | str, body: bytes, fingerprints: Mapping[TokenId, str]) -> bytes:
    """Write ``body`` for ``node`` under each of its tokens' fingerprints."""
    seals = {token: _mac(node, body, key) for token, key in fingerprints.items()}
    return msgspec.json.encode(seals) + b"\n" + body


def tokens_of(value: bytes) -> frozenset[TokenId]:
    """Name the tokens under which a value says it is sealed."""
    return frozenset(_seals(value))


def body_of(value: bytes) -> bytes:
    """Give the body of a value, whoever wrote it; a value without a line of seals is one."""
    _, line, body = value.partition(b"\n")
    return body if line else value


def check(node: NodeName | str, value: bytes, fingerprints: Mapping[TokenId, str]) -> None:
    """See that a value bears a true seal under one of a node's tokens, if it has any.

    Raises:
        Malformed: it bears none.
    """
    found, body = _seals(value), body_of(value)
    for token, key in fingerprints.items():
        if hmac.compare_digest(found.get(token, ""), _mac(node, body, key)):
            return
    if fingerprints:
        detail = "no service wrote this: it bears no seal of the node's"
        raise Malformed(Rejected(code="desired.unsealed", detail=detail))


def unseal(node: NodeName | str, value: bytes, token: str) -> bytes:
    """Give the body of what a service wrote for the agent with this token.

    An agent whose password is none of the platform's tokens has a server that somebody else guards.

    Raises:
        Malformed: no service did.
    """
    if token.startswith(AGENTS) and token.count("_") == 3:
        check(node, value, {TokenId(token.split("_")[2]): fingerprint(token)})
    return body_of(value)


def _seals(value: bytes) -> dict[TokenId, str]:
    try:
        return _decode(value.partition(b"\n")[0])
    except msgspec.MsgspecError:
        return {}


def _mac(node: str, body: bytes, key: str) -> str:
    return hmac.new(key.encode(), node.encode() + b"\n" + body, hashlib.sha256).hexdigest()
