"""``ebb node``: the machines."""

import click

from ebbtide.cli.printing import put_json, table
from ebbtide.cli.run import SETTINGS, json_option, run
from ebbtide.client import Client
from ebbtide.contracts.units import show_quantity

HEADERS = ("NODE", "POOL", "STATE", "FREE / CAPACITY")


@click.group("node", context_settings=SETTINGS)
def command() -> None:
    """Look at nodes."""


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
        (node.name, node.pool, node.reachability, _room(node.free, node.capacity)) for node in nodes
    ]
    table(HEADERS, rows, "no nodes")


def _room(free: dict[str, int], capacity: dict[str, int]) -> str:
    return ", ".join(
        f"{name} {show_quantity(name, free[name])} / {show_quantity(name, amount)}"
        for name, amount in sorted(capacity.items())
    )


def main(argv: list[str]) -> int:
    """Run the verb."""
    return run(command, argv)
