"""``/v1``: code, status, tokens, health."""

import asyncio
from importlib.metadata import version
from typing import Annotated

from litestar import Response, delete, get, head, post, put
from litestar.params import FromPath, JSONBody, PathParameter

from ebbtide.api.codes import CODE_BYTES_MAX
from ebbtide.api.door import READ_TIMEOUT_S
from ebbtide.api.http_common import PROBLEMS, Asking, PositionQuery, door_of, only_admin, reached
from ebbtide.api.http_nodes import views
from ebbtide.api.problems import refuse
from ebbtide.api.render import token_view
from ebbtide.contracts.errors import NotFound, Unavailable
from ebbtide.contracts.http import CreateToken, Health, Status, TokenView, Uploaded
from ebbtide.contracts.ids import TokenId

_VERSION = version("ebbtide")
Digest = Annotated[str, PathParameter(description="sha256:<64 hexadecimal digits> of the archive")]


@put(
    "/code/{digest:str}",
    summary="Upload code",
    request_max_body_size=CODE_BYTES_MAX,
    responses=PROBLEMS,
)
async def put_code(request: Asking, digest: Digest) -> Response[Uploaded]:
    """Take an archive (tar, compressed with zstd) whose bytes have the digest in the path."""
    if not request.auth.may_write:
        raise refuse(403, "auth.viewer", "a viewer may look, not upload", "use a member token")
    new = await door_of(request).codes.receive(digest, request.stream())
    return Response(Uploaded(digest=digest, new=new), status_code=201 if new else 200)


@head("/code/{digest:str}", summary="Ask whether code is there", responses=PROBLEMS)
async def head_code(request: Asking, digest: Digest) -> None:
    """Answer 200 if an archive of this digest was uploaded, else 404."""
    if not await door_of(request).codes.has(digest):
        raise NotFound(f"there is no code {digest[:80]!r}")


@get("/status", summary="The platform at a glance", responses=PROBLEMS)
async def status(request: Asking, min_position: PositionQuery = 0) -> Status:
    """Give how far log and door are, the nodes, and the caller's jobs by phase."""
    door = door_of(request)
    await reached(door, min_position)
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            newest = await door.log.head()
    except TimeoutError as error:
        raise Unavailable("the log does not answer") from error
    jobs: dict[str, int] = {}
    for workspace, phases in door.picture.counts.items():
        if request.auth.sees(workspace):
            for phase, count in phases.items():
                jobs[phase] = jobs.get(phase, 0) + count
    return Status(
        cell=door.cell,
        version=_VERSION,
        epoch=newest.epoch,
        head=newest.number,
        position=door.projector.position,
        nodes=tuple(views(door)),
        jobs=jobs,
    )


@get("/tokens", summary="List tokens", responses=PROBLEMS)
async def list_tokens(request: Asking) -> list[TokenView]:
    """Give every credential without its secret (admins only)."""
    only_admin(request)
    known = door_of(request).picture.tokens.values()
    return [token_view(token) for token in sorted(known, key=lambda token: token.created_at)]


@post("/tokens", summary="Create a token", responses=PROBLEMS)
async def create_token(request: Asking, data: JSONBody[CreateToken]) -> TokenView:
    """Make a credential (admins only). Its secret is in this answer and never shown again."""
    only_admin(request)
    token, secret = await door_of(request).create_token(data, request.auth)
    return token_view(token, secret)


@delete("/tokens/{token:str}", summary="Revoke a token", status_code=200, responses=PROBLEMS)
async def revoke_token(request: Asking, token: FromPath[str]) -> TokenView:
    """Let a credential open nothing any more (admins only); revoking twice is revoking once."""
    only_admin(request)
    revoked = await door_of(request).revoke_token(TokenId(token), request.auth)
    return token_view(revoked)


@get("/health", summary="Whether the door answers", security=[{}])
async def health(request: Asking) -> Health:
    """Answer without a token and without touching any server."""
    door = door_of(request)
    position = door.projector.position
    return Health(status="ok", cell=door.cell, bus=door.bus.connected, position=position)


HANDLERS = [put_code, head_code, status, list_tokens, create_token, revoke_token]
OPEN_HANDLERS = [health]
