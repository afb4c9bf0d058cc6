"""``ebb ls``: jobs, newest first."""

import click

from ebbtide.cli.printing import age, put_json, say, table
from ebbtide.cli.run import SETTINGS, json_option, run
from ebbtide.client import Client
from ebbtide.contracts.http import FINAL_PHASES, JobView

HEADERS = ("JOB", "NAME", "PHASE", "WORKERS", "AGE", "DETAIL")
NODES_SHOWN = 3


@click.command("ls", context_settings=SETTINGS)
@click.option("--phase", "phases", multiple=True, help="Only jobs in this phase; may be repeated.")
@click.option("--name", default="", help="Only jobs of this name.")
@click.option("--workspace", default="", help="Only jobs of this workspace (admins).")
@click.option("--mine", is_flag=True, help="Only what this token submitted.")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True)
@click.option("--cursor", default="", help="Go on after the page before.")
@json_option
def command(  # noqa: PLR0913, PLR0917 - each is an option
    phases: tuple[str, ...],
    name: str,
    workspace: str,
    mine: bool,
    limit: int,
    cursor: str,
    as_json: bool,
) -> None:
    """List jobs, newest first."""
    with Client.from_environment() as client:
        page = client.list(
            phases=phases,
            name=name,
            workspace=workspace,
            mine=mine,
            limit=limit,
            cursor=cursor,
        )
    if as_json:
        put_json(page)
        return
    table(HEADERS, [_row(job) for job in page.jobs], "no jobs")
    if page.next:
        say(f"there are more: --cursor {page.next}")


def _row(job: JobView) -> tuple[object, ...]:
    took = age(job.submitted_at, job.ended_at)
    return job.id, job.name, job.phase, job.workers, took, _detail(job)


def _detail(job: JobView) -> str:
    """Say where a job is, which attempt it is when that is not the first, and why it is so."""
    said = [f"{job.code}: {job.why}" if job.code else job.why] if job.why else []
    if job.nodes and job.phase not in FINAL_PHASES:
        more = len(job.nodes) - NODES_SHOWN
        nodes = ", ".join(job.nodes[:NODES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        said.insert(0, f"on {nodes}")
    if job.attempt > 1:
        said.append(f"attempt {job.attempt}")
    return "; ".join(said)


def main(argv: list[str]) -> int:
    """Run the verb."""
    return run(command, argv)
