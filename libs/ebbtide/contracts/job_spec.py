"""A job as a person describes it, and as it is stored.

:func:`parse_job_spec` is the one door: files, flags, HTTP and the SDK all come through it, so that
an error names the same field everywhere. What it returns is whole: every default is filled in.
"""

from collections.abc import Mapping
from typing import Literal, TypeVar

import msgspec

from ebbtide.contracts.errors import Malformed, Rejected
from ebbtide.contracts.ids import QuotaName, is_name
from ebbtide.contracts.units import (
    DEVICES_MAX,
    MILLI,
    NAMES_MAX,
    is_gpu,
    parse_vector,
    show_quantity,
)

T = TypeVar("T", bound=msgspec.Struct)
JobType = Literal["custom", "pytorch", "xgboost"]
IdleUse = Literal["never", "acceptable", "only"]
CutOff = Literal["stop", "run"]

DEFAULT_RESOURCES: dict[str, int] = {"cpu": 1000, "memory": 1024}
WORKERS_MAX = 2000
"""A gang's workers must fit one event of 64 KiB: with the node and devices of each when it is
placed, with the length of each log when it has ended."""
SPEC_BYTES_MAX = 48 * 1024
"""A stored specification leaves room for its envelope within the 64 KiB of one event."""


class Role(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Workers of one kind: ``replicas`` of them, each with ``resources`` and a command."""

    replicas: int = 1
    resources: dict[str, int] = msgspec.field(default_factory=lambda: dict(DEFAULT_RESOURCES))
    command: tuple[str, ...] = ()


class Restart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a failed gang is started again; preemptions and lost nodes do not count."""

    max_restarts: int = 3
    backoff_s: int = 1


class _Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job says besides its roles.

    ``code`` is the digest of an uploaded folder (``sha256:<hex>``), or empty. ``when_cut_off`` says
    what happens to workers whose node can no longer renew its lease: ``stop`` ends them with it,
    ``run`` lets them go on (they are placed again only behind a fence).
    """

    name: str
    type: JobType = "custom"
    quota: QuotaName = QuotaName("default")
    idle: IdleUse = "never"
    priority: int = 5
    command: tuple[str, ...] = ()
    code: str = ""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    restart: Restart = Restart()
    when_cut_off: CutOff = "run"
    grace_s: int = 30


class JobSpec(_Job, frozen=True, kw_only=True):
    """A whole job as the log keeps it.

    Resources are integers as :mod:`ebbtide.contracts.units` says.
    """

    roles: dict[str, Role] = msgspec.field(default_factory=dict)


class WrittenRole(msgspec.Struct, frozen=True, kw_only=True):
    """Workers of one kind, with quantities as people write them: ``"1"``, ``"500m"``, ``"1Gi"``."""

    replicas: int
    resources: dict[str, str]
    command: tuple[str, ...]


class WrittenJob(_Job, frozen=True, kw_only=True):
    """A whole job as people write it: submitted again, it is the very same job.

    Every default is filled in, and resources are quantities such as ``"500m"`` and ``"1Gi"``.
    """

    roles: dict[str, WrittenRole]


def write_job_spec(spec: JobSpec) -> WrittenJob:
    """Write a job so that :func:`parse_job_spec` reads the same one; the inverse of it."""
    roles = {
        name: WrittenRole(
            replicas=role.replicas,
            resources={key: show_quantity(key, amount) for key, amount in role.resources.items()},
            command=role.command,
        )
        for name, role in spec.roles.items()
    }
    rest = {name: getattr(spec, name) for name in _Job.__struct_fields__}
    return WrittenJob(**rest, roles=roles)


def workers_of(spec: JobSpec | WrittenJob) -> list[tuple[str, int]]:
    """List (role, index in role) of every worker in rank order: roles as written, rank 0 first."""
    return [(name, index) for name, role in spec.roles.items() for index in range(role.replicas)]


def command_of(spec: JobSpec, role: str) -> tuple[str, ...]:
    """Give the command that a worker of ``role`` runs."""
    return spec.roles[role].command or spec.command


def _refuse(field: str, detail: str, hint: str = "", code: str = "spec.invalid") -> Malformed:
    return Malformed(Rejected(code=code, field=field, detail=detail, hint=hint))


def _table(field: str, value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise _refuse(field, f"a table is needed here, not {type(value).__name__}")
    return dict(value)


def _known(field: str, table: Mapping[str, object], struct: type[msgspec.Struct]) -> None:
    for name in table:
        if name not in struct.__struct_fields__:
            path = f"{field}.{name}" if field else str(name)
            known = ", ".join(struct.__struct_fields__)
            raise _refuse(path[:200], "unknown field", f"known here: {known}", "spec.unknown_field")


def _typed(field: str, table: dict[str, object], struct: type[T]) -> T:
    _known(field, table, struct)
    try:
        return msgspec.convert(table, struct)
    except msgspec.ValidationError as error:
        detail, _, path = str(error).partition(" - at `$")
        where = (field + path.rstrip("`")).lstrip(".") or field or "job"
        raise _refuse(where[:200], detail[:300]) from error


def _whole(field: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _refuse(
            field, f"a whole number from {least} to {most} is needed, not {str(value)[:40]!r}"
        )


def _printable(field: str, text: str) -> None:
    if "\x00" in text:
        raise _refuse(field, "a NUL character cannot be passed to a process")


def _role(name: str, given: object) -> Role:
    field = f"roles.{name}"
    table = _table(field, given)
    if "resources" in table:
        resources = _table(f"{field}.resources", table["resources"])
        vector = parse_vector(f"{field}.resources", resources)
        _check_gpus(f"{field}.resources", vector)
        table["resources"] = {**DEFAULT_RESOURCES, **vector}
    _whole(f"{field}.replicas", table.get("replicas", 1), 1, WORKERS_MAX)
    return _typed(field, table, Role)


def _check_gpus(field: str, vector: Mapping[str, int]) -> None:
    gpus = {name: amount for name, amount in vector.items() if is_gpu(name)}
    if len(gpus) > 1:
        raise _refuse(field, f"a worker has one model of GPU, not {' and '.join(gpus)}")
    if sum(gpus.values()) > DEVICES_MAX * MILLI:
        hint = "ask for more workers with fewer devices each"
        raise _refuse(field, f"no node has more than {DEVICES_MAX} devices", hint)


def _check(spec: JobSpec) -> None:
    if not is_name(spec.name):
        hint = "lower-case letters, digits and inner dashes, at most 63"
        raise _refuse("name", f"{spec.name[:80]!r} cannot name a job", hint, "spec.name")
    if not is_name(spec.quota):
        raise _refuse("quota", f"{spec.quota[:80]!r} cannot name a quota")
    _whole("priority", spec.priority, 1, 9)
    _whole("grace_s", spec.grace_s, 0, 86_400)
    _whole("restart.max_restarts", spec.restart.max_restarts, 0, 1000)
    _whole("restart.backoff_s", spec.restart.backoff_s, 0, 3600)
    if sum(role.replicas for role in spec.roles.values()) > WORKERS_MAX:
        raise _refuse("roles", f"more than {WORKERS_MAX} workers", "split the job")
    if spec.code and not (spec.code.startswith("sha256:") and len(spec.code) == 71):
        raise _refuse(
            "code",
            "not the digest of an uploaded folder",
            "upload the folder first: PUT /v1/code/sha256:<hex>",
        )
    _check_roles(spec)
    for key, value in spec.env.items():
        if not key or "=" in key:
            raise _refuse("env", f"{key[:80]!r} cannot name an environment variable")
        _printable(f"env.{key[:80]}", key + value)


def _check_roles(spec: JobSpec) -> None:
    if len({name for role in spec.roles.values() for name in role.resources}) > NAMES_MAX:
        raise _refuse("roles", f"the roles name more than {NAMES_MAX} resources", "name fewer")
    for role in spec.roles:
        command = command_of(spec, role)
        if not is_name(role):
            raise _refuse("roles", f"{role[:80]!r} cannot name a role")
        if not command or not command[0]:
            raise _refuse(
                "command",
                "the command is empty",
                'write command = ["python", "train.py"]',
                "spec.command",
            )
        for part in command:
            _printable("command", part)


def parse_job_spec(given: object) -> JobSpec:
    """Read a job from the tables of a TOML, YAML or JSON document; fill in every default.

    Raises:
        Malformed: names the field, what was wrong and what to do.
    """
    table = _table("job", given)
    _known("", table, JobSpec)
    roles = _table("roles", table.get("roles", {})) or {"worker": {}}
    table["roles"] = {str(name): _role(str(name), role) for name, role in roles.items()}
    if isinstance(table.get("command"), str):
        raise _refuse(
            "command",
            "a list of words is needed, not one string",
            'write ["sh", "-c", "…"] for a shell line',
            "spec.command",
        )
    if "name" not in table:
        raise _refuse("name", "a job needs a name", 'write name = "my-job"', "spec.name")
    restart = table.get("restart")
    if restart is not None:
        table["restart"] = _typed("restart", _table("restart", restart), Restart)
    spec = _typed("", table, JobSpec)
    _check(spec)
    if len(msgspec.json.encode(spec)) > SPEC_BYTES_MAX:
        raise _refuse(
            "job",
            f"the job is longer than {SPEC_BYTES_MAX} bytes as stored",
            "move what is large into the code folder",
        )
    return spec
