"""Credentials, on ``token-<id>``. Only a hash of the secret is ever said."""

from typing import Literal

import msgspec

from ebbtide.contracts.ids import TokenId

TokenKind = Literal["admin", "member", "viewer", "job", "agent"]


class TokenCreated(msgspec.Struct, frozen=True, kw_only=True, tag="token.created"):
    """Whoever shows the secret of ``secret_sha256`` acts as ``kind`` for ``subject`` (api).

    ``subject`` is the workspace of a member or viewer, the node of an agent, the job of a job.
    """

    token: TokenId
    kind: TokenKind
    subject: str
    secret_sha256: str


class TokenRevoked(msgspec.Struct, frozen=True, kw_only=True, tag="token.revoked"):
    """The token opens nothing any more (api)."""

    token: TokenId


TokenEvent = TokenCreated | TokenRevoked
