"""``ebb show``: one job, whole."""

import click

from ebbtide.cli.printing import age, facts, put_json
from ebbtide.cli.run import SETTINGS, json_option, run
from ebbtide.client import Client
from ebbtide.contracts.http import JobDetail


@click.command("show", context_settings=SETTINGS)
@click.argument("job")
@json_option
def command(job: str, as_json: bool) -> None:
    """Show one job: where it is, why, and what was asked for."""
    with Client.from_environment() as client:
        detail = client.get(job)
    if as_json:
        put_json(detail)
    else:
        _show(detail)


def _show(job: JobDetail) -> None:
    spec = job.spec
    why = f"{job.code}: {job.why}" if job.code else job.why
    pairs: list[tuple[str, object]] = [
        ("job", job.id),
        ("name", job.name),
        ("workspace", job.workspace),
        ("phase", job.phase),
        ("why", why),
        ("attempt", job.attempt or ""),
        ("restarts", f"{job.restarts} of {spec.restart.max_restarts}"),
        ("nodes", ", ".join(job.nodes)),
        ("charge", job.charge.replace("_", " ")),
        ("checkpoint", "" if job.newest_step is None else f"step {job.newest_step}"),
        ("submitted", f"{job.submitted_at.astimezone():%Y-%m-%d %H:%M:%S}"),
        ("age", age(job.submitted_at, job.ended_at)),
        ("ran for", age(job.started_at, job.ended_at) if job.started_at else ""),
        ("type", spec.type),
        ("quota", spec.quota),
        ("priority", spec.priority),
        ("command", " ".join(spec.command)),
        ("code", spec.code),
        ("env", " ".join(f"{name}={value}" for name, value in spec.env.items())),
    ]
    for name, role in spec.roles.items():
        command = f": {' '.join(role.command)}" if role.command else ""
        needs = ", ".join(f"{key} {amount}" for key, amount in sorted(role.resources.items()))
        pairs.append((f"role {name}", f"{role.replicas} x ({needs}){command}"))
    facts(pairs)


def main(argv: list[str]) -> int:
    """Run the verb."""
    return run(command, argv)
