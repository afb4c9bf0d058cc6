"""The HTTP application: routes, who may pass, and how errors look. Made once per process."""

from litestar import Litestar, Router
from litestar.datastructures import State
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from ebbtide.api import http_jobs, http_logs, http_nodes, http_platform, http_story
from ebbtide.api.door import Door
from ebbtide.api.http_common import authenticate
from ebbtide.api.problems import on_error

BODY_BYTES_MAX = 1024 * 1024
"""A job is at most 48 KiB as stored; nothing else but code is larger."""
API_VERSION = "1"

_SCHEMA = OpenAPIConfig(
    title="Ebbtide",
    version=API_VERSION,
    path="/v1/schema",
    render_plugins=[JsonRenderPlugin(path="/")],
    components=Components(
        security_schemes={"token": SecurityScheme(type="http", scheme="bearer")},
    ),
    security=[{"token": []}],
)


def application(door: Door | None) -> Litestar:
    """Make the application for ``door``; without one it only knows its own schema."""
    handlers = [
        *http_jobs.HANDLERS,
        *http_story.HANDLERS,
        *http_logs.HANDLERS,
        *http_nodes.HANDLERS,
        *http_platform.HANDLERS,
    ]
    closed = Router("/", route_handlers=handlers, before_request=authenticate)
    everything = Router("/v1", route_handlers=[closed, *http_platform.OPEN_HANDLERS])
    return Litestar(
        route_handlers=[everything],
        exception_handlers={Exception: on_error},
        openapi_config=_SCHEMA,
        state=State({"door": door}),
        request_max_body_size=BODY_BYTES_MAX,
        logging_config=None,
        debug=False,
        pdb_on_exception=False,
    )
