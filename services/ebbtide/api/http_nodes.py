"""``/v1/nodes``: list, look, and change what they are used for."""

from litestar import get, post
from litestar.params import FromPath, JSONBody

from ebbtide.api.door import Door
from ebbtide.api.http_common import PROBLEMS, Asking, PositionQuery, door_of, only_admin, reached
from ebbtide.api.render import node_detail, node_view
from ebbtide.contracts.http import ChangeNode, NodeDetail, NodeView


def views(door: Door) -> list[NodeView]:
    """Show every node, in the order in which they joined."""
    nodes = door.picture.nodes
    return [node_view(nodes[number], door.picture) for number in sorted(nodes)]


@get("/nodes", summary="List nodes", responses=PROBLEMS)
async def list_nodes(request: Asking, min_position: PositionQuery = 0) -> list[NodeView]:
    """Give every node that ever joined, with what is free on it."""
    door = door_of(request)
    await reached(door, min_position)
    return views(door)


@get("/nodes/{node:str}", summary="Look at a node", responses=PROBLEMS)
async def get_node(
    request: Asking, node: FromPath[str], min_position: PositionQuery = 0
) -> NodeDetail:
    """Give a node, and the jobs on it that exist for the caller."""
    door = door_of(request)
    await reached(door, min_position)
    return node_detail(door.node(node), door.picture, request.auth.sees)


@post("/nodes/{node:str}/change", summary="Change a node", status_code=200, responses=PROBLEMS)
async def change_node(
    request: Asking, node: FromPath[str], data: JSONBody[ChangeNode]
) -> NodeDetail:
    """Cordon, drain, move the work off, uncordon or fence a node (admins only).

    It is done in a moment; until then ``asked`` is shown. Asking twice is asking once.
    """
    only_admin(request)
    door = door_of(request)
    changed = await door.change_node(node, data, request.auth)
    return node_detail(changed, door.picture, request.auth.sees)


HANDLERS = [list_nodes, get_node, change_node]
