"""The picture as people see it: rows become the answers of the HTTP interface. Pure."""

from collections.abc import Callable

from ebbtide.api.model import Alive, Picture, Row, Token
from ebbtide.contracts.http import JobDetail, JobView, NodeDetail, NodeView, NodeWork, TokenView
from ebbtide.contracts.ids import Workspace
from ebbtide.contracts.job_spec import write_job_spec
from ebbtide.model.node import Node

NO_NODES = "nodes.none: no node is registered; it starts as soon as one with room joins"
NOT_READY = "nodes.none: no node takes work; it starts as soon as one with room does again"
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
    elif not any(node.takes_work for node in picture.nodes.values()):
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
    """Show a node in a list."""
    jobs = len(picture.there.get(node.number, {}))
    return NodeView(**_node_fields(node, picture), jobs=jobs)  # type: ignore[arg-type]  # by name


def node_detail(node: Node, picture: Picture, sees: Callable[[Workspace], bool]) -> NodeDetail:
    """Show a node with its work; of jobs that do not exist for the caller only their number."""
    there = picture.there.get(node.number, {})
    rows = [picture.jobs[name].row for name in there]
    return NodeDetail(
        **_node_fields(node, picture),  # type: ignore[arg-type]  # by name
        address=node.address,
        boot=node.boot,
        jobs=len(there),
        work=tuple(_work(row, there[row.id]) for row in rows if sees(row.workspace)),
    )


def _work(row: Row, workers: int) -> NodeWork:
    return NodeWork(
        id=row.id,
        name=row.name,
        workspace=row.workspace,
        phase=row.phase,
        attempt=row.attempt,
        workers=workers,
    )


def _node_fields(node: Node, picture: Picture) -> dict[str, object]:
    fields = {name: getattr(node, name) for name in _SAME_OF_NODES}
    return {**fields, "asked": node.wish, "free": picture.free(node)}


_SAME_OF_NODES = frozenset(NodeView.__struct_fields__) & frozenset(Node.__struct_fields__)


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
