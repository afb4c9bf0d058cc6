"""``ebb stop``: asks for jobs to end."""

import click

from ebbtide.cli import exits
from ebbtide.cli.printing import put_json, say
from ebbtide.cli.run import SETTINGS, code_of, explain, json_option, run
from ebbtide.client import Client
from ebbtide.contracts.errors import EbbtideError
from ebbtide.contracts.http import StopAnswer


@click.command("stop", context_settings=SETTINGS)
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@click.option("--reason", default="", help="Told to whoever asks why.")
@json_option
def command(jobs: tuple[str, ...], reason: str, as_json: bool) -> int:
    """Ask for jobs to end. Asking again is harmless, and so is asking too late."""
    worst = exits.OK
    with Client.from_environment() as client:
        for job in jobs:
            try:
                answer = client.stop(job, reason)
            except EbbtideError as error:
                say(f"ebb stop: {explain(error)}")
                worst = max(worst, code_of(error))
                continue
            if as_json:
                put_json(answer)
            else:
                say(_words(answer))
    return worst


def _words(answer: StopAnswer) -> str:
    match answer.verdict:
        case "asked":
            return f"{answer.id}: stopping"
        case "already_asked":
            return f"{answer.id}: was asked to stop before; it is {answer.phase}"
        case "already_final":
            return f"{answer.id}: nothing to stop; it has {_ENDED.get(answer.phase, 'ended')}"


_ENDED = {
    "succeeded": "succeeded",
    "failed": "failed",
    "stopped": "been stopped",
    "rejected": "been rejected",
}


def main(argv: list[str]) -> int:
    """Run the verb."""
    return run(command, argv)
