"""``ebb events``: a job's story, or everything that the platform says."""

import sys
from collections.abc import Iterator

import click

from ebbtide.cli.printing import clean, moment, put, put_json
from ebbtide.cli.run import SETTINGS, json_option, run
from ebbtide.cli.story import words
from ebbtide.client import Client, StoryEvent

NEWEST = 100
"""Events shown of the whole platform when nobody says from where."""


@click.command("events", context_settings=SETTINGS)
@click.argument("job", default="")
@click.option("-f", "--follow", is_flag=True, help="Go on: until the job has ended, or for ever.")
@json_option
def command(job: str, follow: bool, as_json: bool) -> None:
    """Tell a job's story: time, position, and what was said. Without JOB: everybody's."""
    with Client.from_environment() as client:
        for event in _events(client, job, follow=follow):
            if as_json:
                put_json(event)
            else:
                put(_line(event, named=not job))
            if follow:
                sys.stdout.flush()  # whoever reads a pipe wants each event as it comes


def _events(client: Client, job: str, *, follow: bool) -> Iterator[StoryEvent]:
    if job:
        return client.events(job, follow=follow)
    newest = client.status().head
    return client.all_events(max(0, newest - NEWEST), follow=follow)


def _line(event: StoryEvent, *, named: bool) -> str:
    about = f"{clean(event.stream)}  " if named else ""
    return f"{moment(event.at)}  {event.position:>6}  {about}{words(event)}"


def main(argv: list[str]) -> int:
    """Run the verb."""
    return run(command, argv)
