"""``ebb submit``: a job from a file, from flags, or from a file with flags over it."""

from pathlib import Path

import click
import msgspec

from ebbtide.cli import exits
from ebbtide.cli.printing import clean, put, put_json, say
from ebbtide.cli.run import SETTINGS, json_option, misused, run
from ebbtide.client import Client, job_file
from ebbtide.client.packing import pack
from ebbtide.contracts.http import FINAL_PHASES, JobDetail, Submit
from ebbtide.contracts.ids import JobId, Workspace
from ebbtide.contracts.job_spec import parse_job_spec, write_job_spec

DECIDED_S = 3.0
"""How long to wait for the word that a job is queued or rejected; both come in milliseconds."""
TELL_S = 2.0
"""How often somebody who waits is told of changes."""

_OUTCOMES = {
    "succeeded": exits.OK,
    "failed": exits.JOB_FAILED,
    "stopped": exits.JOB_STOPPED,
    "rejected": exits.REFUSED,
}


@click.command(
    "submit", context_settings=SETTINGS, options_metavar="[OPTIONS] [FILE] [-- COMMAND...]"
)
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="")
@click.option("--name", help="What people call the job.")
@click.option("--type", "kind", help="custom, pytorch or xgboost.")
@click.option("--quota", help="Whose share it uses.")
@click.option("--priority", type=int, help="1 to 9; higher goes first.")
@click.option("--workers", type=int, help="How many, in the one role.")
@click.option("--role", help="Which role --workers, --cpu, --memory and --gpu speak of.")
@click.option("--cpu", help="Per worker: 1.5 or 500m.")
@click.option("--memory", help="Per worker: 2Gi.")
@click.option("--gpu", help="Per worker: 1, or h100=8.")
@click.option("--env", "env", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option("--code", help="Folder to pack and upload; relative to the working directory.")
@click.option("--max-restarts", type=int, help="How often a failed gang is started again.")
@click.option("--workspace", default="", help="Into which workspace (admins).")
@click.option("--id", "job_id", help="Submit under this id; twice with one id is one job.")
@click.option(
    "--dry-run", is_flag=True, help="Print the job with all defaults, as a job file in JSON."
)
@click.option("--wait", is_flag=True, help="Exit as the job does.")
@json_option
@click.pass_obj
def command(  # noqa: PLR0913, PLR0917 - each is an option
    words: tuple[str, ...],
    /,
    file: Path | None,
    workspace: str,
    job_id: str | None,
    dry_run: bool,
    wait: bool,
    as_json: bool,
    **flags: object,
) -> int:
    """Submit a job.

    FILE is a job in TOML, YAML or JSON; flags go over what it says. What follows -- is the command.
    """
    tables = assemble(file, words, flags)
    if dry_run:
        whole = write_job_spec(parse_job_spec(_packed(tables)))
        put(msgspec.json.format(msgspec.json.encode(whole)).decode())
        return exits.OK
    with Client.from_environment() as client:
        tables = client.prepare(tables)
        name = JobId(job_id) if job_id else client.new_job_id()
        client.send(Submit(id=name, job=tables, workspace=Workspace(workspace)))
        if not as_json:
            put(name)
        detail = client.wait_decided(name, DECIDED_S)
        if wait and detail.phase not in FINAL_PHASES:
            detail = _wait(client, detail, quiet=as_json)
        elif not as_json:
            say(_where(detail))
    if as_json:
        put_json(detail)
    if wait or detail.phase == "rejected":
        return _OUTCOMES.get(detail.phase, exits.UNAVAILABLE)
    return exits.OK


def assemble(
    file: Path | None, words: tuple[str, ...], flags: dict[str, object]
) -> dict[str, object]:
    """Put a job together from a file and from flags; a code folder is made findable from here.

    Raises:
        Malformed: a flag does not fit the job.
    """
    tables = job_file.load(file) if file is not None else {}
    code = tables.get("code")
    if file is not None and isinstance(code, str) and code and not code.startswith("sha256:"):
        tables["code"] = str(file.parent / code)
    if words:
        tables["command"] = list(words)
    for flag, field in (
        ("name", "name"),
        ("kind", "type"),
        ("quota", "quota"),
        ("priority", "priority"),
        ("code", "code"),
    ):
        if flags.get(flag) is not None:
            tables[field] = flags[flag]
    if flags.get("max_restarts") is not None:
        tables["restart"] = {**_table(tables, "restart"), "max_restarts": flags["max_restarts"]}
    if flags.get("env"):
        tables["env"] = {**_table(tables, "env"), **_env(flags["env"])}
    _size(tables, flags)
    return tables


def _size(tables: dict[str, object], flags: dict[str, object]) -> None:
    """Lay what flags say of workers over the one role that they can mean."""
    asked = {name: flags[name] for name in ("cpu", "memory") if flags.get(name) is not None}
    if flags.get("gpu") is not None:
        model, is_named, amount = str(flags["gpu"]).partition("=")
        asked[f"gpu/{model}" if is_named else "gpu"] = amount if is_named else model
    if not asked and flags.get("workers") is None:
        return
    roles = _table(tables, "roles") or {"worker": {}}
    name = str(flags.get("role") or next(iter(roles)))
    if flags.get("role") is None and len(roles) > 1:
        raise misused("--role", f"the job has {len(roles)} roles", f"name one: {', '.join(roles)}")
    role = dict(_table(roles, name))
    if flags.get("workers") is not None:
        role["replicas"] = flags["workers"]
    if asked:
        role["resources"] = {**_table(role, "resources"), **asked}
    tables["roles"] = {**roles, name: role}


def _table(tables: dict[str, object], field: str) -> dict[str, object]:
    given = tables.get(field, {})
    if not isinstance(given, dict):
        raise misused(field, f"a table is needed here, not {type(given).__name__}")
    return given


def _env(pairs: object) -> dict[str, object]:
    env: dict[str, object] = {}
    for pair in pairs if isinstance(pairs, tuple) else ():
        name, sign, value = str(pair).partition("=")
        if not name or not sign:
            raise misused("--env", f"{pair!r} is not NAME=VALUE", "write --env NAME=VALUE")
        env[name] = value
    return env


def _packed(tables: dict[str, object]) -> dict[str, object]:
    """Give the tables with the digest that the code folder would get."""
    code = tables.get("code")
    if not isinstance(code, str) or not code or code.startswith("sha256:"):
        return tables
    archive = pack(Path(code))
    archive.file.close()
    return {**tables, "code": archive.digest}


def _where(detail: JobDetail) -> str:
    if detail.phase == "rejected":
        return clean(f"rejected: {detail.code}: {detail.why}")
    return clean(f"{detail.phase}" + (f": {detail.why}" if detail.why else ""))


def _wait(client: Client, detail: JobDetail, *, quiet: bool) -> JobDetail:
    """Wait for the end, telling of each change on the way."""
    said = ""
    while True:
        now = _where(detail)
        if now != said and not quiet:
            say(now)
        said = now
        if detail.phase in FINAL_PHASES:
            return detail
        detail = client.wait(detail.id, timeout_s=TELL_S)


def main(argv: list[str]) -> int:
    """Run the verb."""
    if "--" not in argv:
        return run(command, argv)
    cut = argv.index("--")
    return run(command, argv[:cut], tuple(argv[cut + 1 :]))
