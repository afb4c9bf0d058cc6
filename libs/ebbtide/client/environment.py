"""Where the platform is and who asks: the environment, else a local home."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from ebbtide.contracts.errors import Malformed, Rejected, Unavailable


class Where(NamedTuple):
    """A platform's address, the token to show, and its cell if that is known already."""

    url: str
    token: str
    cell: str = ""


class _Platform(msgspec.Struct):
    """What a local platform keeps in ``platform.json`` for those who look for it."""

    url: str
    cell: str = ""


def home(environ: Mapping[str, str]) -> Path:
    """Give the folder in which a local platform keeps its state."""
    named = environ.get("EBB_HOME")
    if named:
        return Path(named).absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/ebbtide")
    return Path.home() / ".local" / "share" / "ebbtide"


def find(environ: Mapping[str, str]) -> Where:
    """Find the platform: ``EBB_URL`` and ``EBB_TOKEN`` come first, then the local home.

    Raises:
        Unavailable: there is none.
        Malformed: what is configured cannot be read.
    """
    url, token = environ.get("EBB_URL", ""), environ.get("EBB_TOKEN", "")
    cell = ""
    folder = home(environ)
    if not url:
        local = _local(folder / "platform.json")
        url, cell = local.url, local.cell
    if not token:
        token = _token(folder / "secrets" / "admin.token", is_local=not environ.get("EBB_URL"))
    if not token.isascii() or not token.isprintable() or " " in token:
        detail = "the token holds what no token has, such as a space or a line break"
        hint = "set EBB_TOKEN to what `ebb token create` printed, and nothing more"
        raise Malformed(
            Rejected(code="auth.malformed", field="EBB_TOKEN", detail=detail, hint=hint)
        )
    return Where(url, token, cell)


def _local(path: Path) -> _Platform:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Platform)
    except FileNotFoundError as error:
        raise Unavailable(
            f"no platform is known here (no {path}): start one with `ebb up`, or set EBB_URL"
        ) from error
    except OSError as error:
        raise _unreadable(path, error.strerror or "unreadable") from error
    except msgspec.DecodeError as error:
        raise _unreadable(path, str(error)) from error


def _token(path: Path, *, is_local: bool) -> str:
    """Take the local admin's token, but never show it to a platform elsewhere."""
    if is_local:
        try:
            return path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise _unreadable(path, error.strerror or "unreadable") from error
    raise Malformed(
        Rejected(
            code="auth.missing",
            field="EBB_TOKEN",
            detail="EBB_URL is set, but no token",
            hint="set EBB_TOKEN to a token of that platform",
        )
    )


def _unreadable(path: Path, why: str) -> Malformed:
    hint = "set EBB_URL and EBB_TOKEN, or EBB_HOME to your platform's home"
    return Malformed(Rejected(code="settings", field=str(path), detail=why, hint=hint))
