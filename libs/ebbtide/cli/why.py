"""``ebb why``: what keeps a job from running."""

import click

from ebbtide.cli.printing import clean, put, put_json
from ebbtide.cli.run import SETTINGS, json_option, run
from ebbtide.client import Client


@click.command("why", context_settings=SETTINGS)
@click.argument("job", metavar="JOB")
@json_option
def command(job: str, as_json: bool) -> None:
    """Say the one cause that keeps a job waiting, with the numbers."""
    with Client.from_environment() as client:
        why = client.why(job)
    if as_json:
        put_json(why)
        return
    place = f" (place {why.position} in the order)" if why.position else ""
    put(clean(f"{why.code}: {why.detail}{place}"))


def main(argv: list[str]) -> int:
    """Run the verb."""
    return run(command, argv)
