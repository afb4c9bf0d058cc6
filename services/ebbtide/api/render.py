"""The picture as people see it: rows become the answers of the HTTP interface. Pure."""

from ebbtide.api.model import Alive, Picture, Row, Token
from ebbtide.contracts.http import JobDetail, JobView, NodeView, TokenView
from ebbtide.contracts.job_spec import write_job_spec
from ebbtide.model.node import Node

NO_NODES = "nodes.none: no node is registered; it starts as soon as one with room joins"
NOT_READY = "nodes.none: no registered node is ready; it starts as soon as one with room returns"
FOR_ITS_TURN = "waits for its turn"
FOR_ADMISSION = "waits to be admitted"


def why(row: Row, picture: Picture) -> str:
    """Say why a job is as it is, as far as the door can tell."""
    if row.phase == "submitted":
        return FOR_ADMISSION
    if row.phase not in ("queued", "restarting") or row.held:
        return row.why
    waits = FOR_ITS_TURN
    if not picture.nodes:
        waits = NO_NODES
    elif all(node.reachability != "ready" for node in picture.nodes.values()):
        waits = NOT_READY
    return f"{row.why}; {waits}" if row.why else waits


def _fields(row: Row, picture: Picture) -> dict[str, object]:
    fields = {name: getattr(row, name) for name in JobView.__struct_fields__ if name in _SAME}
    return {**fields, "nodes": row.names, "why": why(row, picture)}


_SAME = frozenset(JobView.__struct_fields__) & frozenset(Row.__struct_fields__)


def job_view(row: Row, picture: Picture) -> JobView:
    """Show a job in a list."""
    return JobView(**_fields(row, picture))  # type: ignore[arg-type]  # the same fields by name


def job_detail(alive: Alive, picture: Picture) -> JobDetail:
    """Show a job with its specification."""
    spec = write_job_spec(alive.spec)
    return JobDetail(**_fields(alive.row, picture), spec=spec)  # type: ignore[arg-type]  # as above


def node_view(node: Node, picture: Picture) -> NodeView:
    """Show a node."""
    return NodeView(
        number=node.number,
        name=node.name,
        pool=node.pool,
        reachability=node.reachability,
        capacity=node.capacity,
        free=picture.free(node),
    )


def token_view(token: Token, secret: str = "") -> TokenView:
    """Show a token; only at its creation with what opens the door."""
    return TokenView(
        id=token.id,
        kind=token.kind,
        subject=token.subject,
        created_at=token.created_at,
        revoked_at=token.revoked_at,
        secret=secret,
    )
