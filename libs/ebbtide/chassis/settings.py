"""Settings from the environment, parsed once and typed; nothing else reads the environment.

``EBB_<NAME>`` is a field of the struct in capitals, after an optional prefix.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from ebbtide.contracts.errors import Malformed, Rejected
from ebbtide.contracts.ids import is_name

S = TypeVar("S", bound=msgspec.Struct)
NATS_SCHEMES = ("nats", "tls", "ws", "wss")


class Secret(str):
    """A string that prints as stars."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    """What every service needs: the cell's name, its servers and the folder of its store."""

    database_url: str
    nats_url: str
    store: str
    cell: str = "main"

    def __repr__(self) -> str:
        return f"Connections(cell={self.cell!r}, store={self.store!r}, servers='***')"


def load(struct: type[S], environ: Mapping[str, str], prefix: str = "EBB_") -> S:
    """Read ``struct`` from variables named ``prefix`` plus the field in capitals.

    Raises:
        Malformed: names the variable that is missing or of the wrong type.
    """
    given = {
        field: environ[prefix + field.upper()]
        for field in struct.__struct_fields__
        if environ.get(prefix + field.upper())
    }
    try:
        return msgspec.convert(given, struct, strict=False)
    except msgspec.ValidationError as error:
        detail = str(error)
        name = next(
            (f for f in struct.__struct_fields__ if f"`{f}`" in detail or f"$.{f}" in detail), ""
        )
        raise Malformed(
            Rejected(
                code="settings",
                field=prefix + name.upper(),
                detail=detail,
                hint="set it in the environment of the process",
            )
        ) from error


def check_address(name: str, url: str, *schemes: str) -> None:
    """Refuse what can be no address; whether anybody answers there is another question.

    Raises:
        Malformed: names the variable, and never shows what it holds: there are passwords in it.
    """
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2].split(",")  # Postgres may have several
        right = parts.scheme in schemes and all(urlsplit(f"//{host}").port != 0 for host in hosts)
    except ValueError:
        right = False
    if not right:
        hint = f"write {schemes[0]}://user:password@host:port"
        detail = "this is no address of a server"
        raise Malformed(Rejected(code="settings", field=name, detail=detail, hint=hint))


def connections(environ: Mapping[str, str]) -> Connections:
    """Read and check the settings that every service shares."""
    settings = load(Connections, environ)
    check_address("EBB_DATABASE_URL", settings.database_url, "postgresql", "postgres")
    for url in settings.nats_url.split(","):
        check_address("EBB_NATS_URL", url.strip(), *NATS_SCHEMES)
    if not is_name(settings.cell):
        raise Malformed(
            Rejected(
                code="settings", field="EBB_CELL", detail=f"{settings.cell!r} cannot name a cell"
            )
        )
    Path(settings.store).mkdir(parents=True, exist_ok=True, mode=0o700)
    return settings
