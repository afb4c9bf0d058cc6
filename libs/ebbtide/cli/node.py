"""``ebb node``: the machines, and what they are used for."""

import time

import click

from ebbtide.cli import exits
from ebbtide.cli.printing import clean, put, put_json, say, table
from ebbtide.cli.run import SETTINGS, json_option, run
from ebbtide.client import Client
from ebbtide.contracts.errors import Unavailable
from ebbtide.contracts.events.node import NodeChange
from ebbtide.contracts.http import NodeDetail, NodeView
from ebbtide.contracts.ids import is_name
from ebbtide.contracts.units import show_quantity

HEADERS = ("NODE", "POOL", "STATE", "JOBS", "FREE / CAPACITY")
WORK_HEADERS = ("JOB", "NAME", "WORKSPACE", "PHASE", "ATTEMPT", "WORKERS")
DONE_WITHIN_S = 5.0
LOOK_EVERY_S = 0.5
DRAINS = ("drain", "move")

_reason = click.option("--reason", default="", help="Told to whoever asks why.")


def _named(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    """Refuse what cannot name a node before it becomes a part of an address."""
    if not is_name(name):
        raise click.BadParameter(f"{name[:80]!r} cannot name a node")
    return name


_name = click.argument("name", metavar="NODE", callback=_named)


@click.group("node", context_settings=SETTINGS)
def command() -> None:
    """Look at nodes, and say what they are used for."""


@command.command("ls")
@json_option
def list_nodes(as_json: bool) -> None:
    """List nodes, and what is free on each."""
    with Client.from_environment() as client:
        nodes = client.nodes()
    if as_json:
        put_json(nodes)
        return
    rows = [
        (node.name, node.pool, state(node), str(node.jobs), _room(node.free, node.capacity))
        for node in nodes
    ]
    table(HEADERS, rows, "no nodes")


@command.command("show")
@_name
@json_option
def show(name: str, as_json: bool) -> None:
    """Show one node and the jobs on it."""
    with Client.from_environment() as client:
        node = client.node(name)
    if as_json:
        put_json(node)
        return
    put(clean(f"{node.name}  {state(node)}  pool {node.pool}  {node.address}  boot {node.boot}"))
    if node.cordon_why:
        put(clean(f"{node.cordon}: {node.cordon_why}"))
    if node.asked is not None:
        put(f"{node.asked} is asked for, and done once node_health runs")
    put(clean(_room(node.free, node.capacity)))
    rows = [
        (one.id, one.name, one.workspace, one.phase, str(one.attempt), str(one.workers))
        for one in node.work
    ]
    table(WORK_HEADERS, rows, "no jobs that you may see" if node.jobs else "no jobs")


@command.command("cordon")
@_name
@_reason
@json_option
def cordon(name: str, reason: str, as_json: bool) -> None:
    """Give a node no new work; what runs there goes on."""
    _change(name, "cordon", reason, as_json)


@command.command("uncordon")
@_name
@_reason
@json_option
def uncordon(name: str, reason: str, as_json: bool) -> None:
    """Let a node have new work again."""
    _change(name, "uncordon", reason, as_json)


@command.command("drain")
@_name
@_reason
@click.option("--move", is_flag=True, help="Have jobs save, leave and go on elsewhere.")
@click.option("--wait", is_flag=True, help="Wait until the node is empty, and tell how it goes.")
@json_option
def drain(name: str, reason: str, move: bool, wait: bool, as_json: bool) -> int | None:
    """Empty a node: no new work, and what runs there may end, or is moved.

    A moved job starts again elsewhere from its newest checkpoint; that uses up none of its
    restarts.
    """
    with Client.from_environment() as client:
        node = _asked(client, name, "move" if move else "drain", reason)
        told = ""
        while wait and node.jobs and node.cordon in DRAINS:
            line = f"{name}: {state(node)}, {_jobs(node.jobs)} left"
            if line != told:
                say(line)
            told = line
            time.sleep(LOOK_EVERY_S)
            node = client.node(name)
    _tell(node, as_json)
    if wait and node.cordon not in DRAINS:
        say(f"somebody asked otherwise meanwhile: {name} is not drained any more")
        return exits.REFUSED
    return None


@command.command("fence")
@_name
@_reason
@click.option("--yes", is_flag=True, help="Do not ask whether you are sure.")
@json_option
def fence(name: str, reason: str, yes: bool, as_json: bool) -> int | None:
    """Vouch that nothing runs on a node that is lost, so that its jobs go on elsewhere.

    Make sure first: switch it off. If it only lost the network, its workers still run, and two
    attempts of one job would write to the same places.
    """
    if not yes and not click.confirm(f"Is {name} switched off for certain?", err=True):
        say("nothing was changed")
        return exits.REFUSED
    _change(name, "fence", reason, as_json)
    return None


def _change(name: str, change: NodeChange, reason: str, as_json: bool) -> None:
    with Client.from_environment() as client:
        node = _asked(client, name, change, reason)
    _tell(node, as_json)


def _asked(client: Client, name: str, change: NodeChange, reason: str) -> NodeDetail:
    """Ask for a change and wait, a moment, until it is made."""
    node = client.change_node(name, change, reason)
    ends_at = time.monotonic() + DONE_WITHIN_S
    while node.asked is not None:
        if time.monotonic() > ends_at:
            raise Unavailable(f"{change} of {name} is recorded, and done once node_health runs")
        time.sleep(0.05)
        node = client.node(name)
    return node


def _tell(node: NodeDetail, as_json: bool) -> None:
    if as_json:
        put_json(node)
    else:
        say(f"{node.name}: {state(node)}" + (f", {_jobs(node.jobs)}" if node.jobs else ""))


def state(node: NodeView) -> str:
    """Say in a word or two how a node is."""
    words = {"cordon": "cordoned", "drain": "draining", "move": "draining"}
    if node.cordon is None:
        return node.reachability
    what = "drained" if node.cordon != "cordon" and not node.jobs else words[node.cordon]
    return f"{node.reachability}, {what}"


def _jobs(count: int) -> str:
    return f"{count} job" if count == 1 else f"{count} jobs"


def _room(free: dict[str, int], capacity: dict[str, int]) -> str:
    return ", ".join(
        f"{name} {show_quantity(name, free[name])} / {show_quantity(name, amount)}"
        for name, amount in sorted(capacity.items())
    )


def main(argv: list[str]) -> int:
    """Run the verb."""
    return run(command, argv)
