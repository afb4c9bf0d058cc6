"""The node agent as a process: settings from the environment, one connection, one node.

``EBB_AGENT_NODE`` and ``EBB_AGENT_STATE`` must be set: a name that the machine happens to have may
be another's as well. The token is its password on the bus, its user name the node's. The
environment is read here and nowhere else, and never handed to a worker.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import structlog

from ebbtide.agent import CARD, capacity
from ebbtide.agent.node import Busy, Facts, Node, boot_id
from ebbtide.chassis import exits, logs
from ebbtide.chassis.bus_nats import NatsBus
from ebbtide.chassis.settings import NATS_SCHEMES, Secret, check_address, load
from ebbtide.contracts.errors import Malformed, Rejected
from ebbtide.contracts.ids import is_name
from ebbtide.contracts.subjects import inbox

_log = structlog.get_logger()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """``EBB_`` and the field in capitals, such as ``EBB_STORE`` and ``EBB_AGENT_NODE``."""

    nats_url: str
    store: str
    agent_state: str
    agent_node: str
    cell: str = "main"
    agent_pool: str = "default"
    agent_address: str = "127.0.0.1"
    agent_capacity: str = ""
    agent_token: str = ""
    agent_cgroup: str = ""
    lease_s: float = 180.0


def settings(environ: Mapping[str, str]) -> Settings:
    """Read and check the settings.

    Raises:
        Malformed: names the variable.
    """
    given = load(Settings, environ)
    for field in ("agent_node", "agent_pool", "cell"):
        if not is_name(getattr(given, field)):
            detail = f"{getattr(given, field)!r} cannot name it: lower-case letters, digits, dashes"
            raise Malformed(Rejected(code="settings", field=f"EBB_{field.upper()}", detail=detail))
    for url in given.nats_url.split(","):
        check_address("EBB_NATS_URL", url.strip(), *NATS_SCHEMES)
    if given.lease_s <= 0:
        raise Malformed(Rejected(code="settings", field="EBB_LEASE_S", detail="must be above zero"))
    return given


def facts(given: Settings, environ: Mapping[str, str]) -> Facts:
    """Say who this node is; detects what was not declared. Blocking."""
    declared = given.agent_capacity
    return Facts(
        cell=given.cell,
        node=given.agent_node,
        pool=given.agent_pool,
        address=given.agent_address,
        capacity=_declared(declared) if declared else capacity.detected(),
        state=Path(given.agent_state).absolute(),
        store=Path(given.store).absolute(),
        interpreter=str(Path(sys.executable).parent),
        home=environ.get("HOME", "/"),
        temporary=environ.get("TMPDIR", "/tmp"),  # noqa: S108 - the system's default
        lease_s=given.lease_s,
        cgroup=given.agent_cgroup,
        boot=boot_id(),
        token=Secret(given.agent_token),
    )


def _declared(text: str) -> dict[str, int]:
    """Read a capacity; a mistake in it is one of settings here, not one of a job."""
    try:
        return capacity.declared(text)
    except Malformed as error:
        raise Malformed(msgspec.structs.replace(error.rejected, code="settings")) from error


async def _run(environ: Mapping[str, str]) -> None:
    given = settings(environ)
    bus = await NatsBus.connect(
        given.nats_url,
        name=f"agent-{given.agent_node}",
        user=given.agent_node if given.agent_token else "",
        password=Secret(given.agent_token),
        inbox_prefix=inbox(given.cell, given.agent_node),
        narrow=True,
        wait_s=0,
    )
    node = Node(facts(given, environ), bus)
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine that runs has a task
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    gc.collect()
    gc.freeze()
    try:
        await node.run()
    except asyncio.CancelledError:
        _log.info("agent.stops", node=given.agent_node)
    finally:
        await bus.close()


def main() -> None:
    """Run the agent until it is told to stop."""
    logs.set_up(CARD.name)
    try:
        asyncio.run(_run(os.environ))
    except Busy as error:
        _log.error("process.ends_for_now", error=str(error))
        sys.exit(exits.EXIT_AGAIN)
    except Exception as error:  # noqa: BLE001 - the last door: say why, then end
        exits.end(error)


if __name__ == "__main__":
    main()
