"""Who is asking: bearer tokens ``ebb_<kind>_<id>_<secret>``, and what each kind may do.

Pure. A token is known by the hash of its whole text; the comparison takes the same time whatever is
wrong, and nothing here ever says which part was.
"""

import hmac
from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from ebbtide.api.model import Token
from ebbtide.contracts.errors import Malformed, Rejected
from ebbtide.contracts.events import TokenCreated, TokenKind
from ebbtide.contracts.ids import TokenId, Workspace, is_job_id, is_name
from ebbtide.contracts.seals import fingerprint

Kind = Literal["admin", "member", "viewer"]
TOKEN_MAX = 200
"""Longer texts are no tokens, and are not hashed."""
SECRET_BYTES = 24
ID_BYTES = 6

_NOBODY = "0" * 64


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who may use the door; an admin's ``workspace`` is empty: all of them."""

    token: TokenId
    kind: Kind
    workspace: Workspace

    @property
    def actor(self) -> str:
        """Give the name under which the log remembers what they asked."""
        return f"token:{self.token}"

    def sees(self, workspace: Workspace) -> bool:
        """Say whether things of ``workspace`` exist for them."""
        return self.kind == "admin" or self.workspace == workspace

    @property
    def may_write(self) -> bool:
        """Say whether they may submit and stop."""
        return self.kind != "viewer"


def recognise(tokens: Mapping[TokenId, Token], text: str) -> Token | None:
    """Find the live token that ``text`` is, or None."""
    parts = text.split("_", 3)
    if len(parts) != 4 or len(text) > TOKEN_MAX:
        return None
    known = tokens.get(TokenId(parts[2]))
    expected = known.secret_sha256 if known is not None else _NOBODY
    same = hmac.compare_digest(fingerprint(text), expected)
    return known if same and known is not None and known.revoked_at is None else None


def principal_of(token: Token) -> Principal | None:
    """Give whom a token lets through the HTTP door; None for kinds that have no business there."""
    match token.kind:
        case "admin":
            return Principal(token=token.id, kind="admin", workspace=Workspace(""))
        case "member" | "viewer" as kind:
            return Principal(token=token.id, kind=kind, workspace=Workspace(token.subject))
        case "job" | "agent":
            return None


def check_subject(kind: TokenKind, subject: str, cell: str) -> None:
    """Refuse a subject that a token of ``kind`` cannot have.

    Raises:
        Malformed: with what it should be.
    """
    wants = {
        "admin": (subject == "", "an admin's token has no subject", "leave it out"),
        "member": (is_name(subject), "a member's subject is a workspace", "write its name"),
        "viewer": (is_name(subject), "a viewer's subject is a workspace", "write its name"),
        "agent": (is_name(subject), "an agent's subject is its node", "write the node's name"),
        "job": (is_job_id(subject, cell), "a job token's subject is a job", "write its id"),
    }
    fine, detail, hint = wants[kind]
    if not fine:
        raise Malformed(Rejected(code="token.subject", field="subject", detail=detail, hint=hint))


def mint(kind: TokenKind, subject: str, randomness: bytes) -> tuple[TokenCreated, str]:
    """Make a token of ``randomness``; give the event, and the text that is shown once."""
    if len(randomness) != ID_BYTES + SECRET_BYTES:
        raise ValueError(f"a token takes {ID_BYTES + SECRET_BYTES} random bytes")
    name = TokenId(randomness[:ID_BYTES].hex())
    text = f"ebb_{kind}_{name}_{randomness[ID_BYTES:].hex()}"
    return _created(kind, name, subject, text), text


def adopt(file_name: str, text: str) -> TokenCreated:
    """Read a token that the platform was set up with: ``admin.token`` or ``agent-<node>.token``.

    Raises:
        ValueError: it is not one; the message never holds its text.
    """
    stem = file_name.removesuffix(".token")
    parts = text.split("_", 3)
    if len(parts) != 4 or parts[0] != "ebb" or len(text) > TOKEN_MAX or not all(parts):
        raise ValueError(f"{file_name} holds no token of the form ebb_<kind>_<id>_<secret>")
    kind: TokenKind | None = next((one for one in get_args(TokenKind) if one == parts[1]), None)
    _, dash, subject = stem.partition("-")
    if kind is None or stem.partition("-")[0] != kind or (kind == "admin") == bool(dash):
        raise ValueError(f"{file_name} holds a token of another kind")
    return _created(kind, TokenId(parts[2]), subject, text)


def _created(kind: TokenKind, name: TokenId, subject: str, text: str) -> TokenCreated:
    return TokenCreated(token=name, kind=kind, subject=subject, secret_sha256=fingerprint(text))
