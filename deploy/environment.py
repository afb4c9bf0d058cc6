"""Makes the private environment of a clone in .venv; deploy/bootstrap runs it.

Standard library only, for it runs before anything is installed. Installs from constraints.txt only
when the project, the constraints, the extras or the interpreter changed. It must never install
system packages, and never touch anything outside the clone but a temporary folder.
"""

# ruff: noqa: INP001, S603, T201 - a script that starts programs and talks to a terminal

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

CLONE = Path(__file__).resolve().parent.parent
ENVIRONMENT = CLONE / ".venv"
STAMP = ".ebbtide.json"
PIP_WHEELS = Path("/usr/share/python-wheels")
PIP_PACKAGE = "python3-pip-whl"
PROBE_TIMEOUT_S = 60
MAKE_TIMEOUT_S = 600
UNUSABLE = 2
# What could make a new interpreter import from elsewhere, or refuse to keep byte code.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "PIP_TARGET")


class Way(NamedTuple):
    """One way to make an environment that has pip."""

    name: str
    make: Callable[[], bool]


def clean_environ() -> dict[str, str]:
    """Give our environment without what would lead an interpreter astray."""
    kept = {name: text for name, text in os.environ.items() if name not in FOREIGN}
    return (
        {"PATH": os.defpath}
        | kept
        | {
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INPUT": "1",
            "PIP_REQUIRE_VIRTUALENV": "0",
        }
    )


def succeeds(
    *command: str | Path, cwd: Path | None = None, timeout_s: float = MAKE_TIMEOUT_S
) -> bool:
    """Run a program quietly; say whether it exists and succeeded."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            check=False,
            capture_output=True,
            cwd=cwd or CLONE,
            env=clean_environ(),
            timeout=timeout_s,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def python_of(environment: Path) -> Path:
    """Give an environment's interpreter."""
    return environment / "bin" / "python"


def has_pip(environment: Path) -> bool:
    """Say whether an environment works and can install."""
    return succeeds(
        python_of(environment), "-I", "-m", "pip", "--version", timeout_s=PROBE_TIMEOUT_S
    )


def identity(environment: Path) -> str:
    """Describe an environment's interpreter; empty when it does not run."""
    try:
        done = subprocess.run(
            [python_of(environment), "-I", "-c", "import sys; print(sys.version, sys.base_prefix)"],
            check=False,
            capture_output=True,
            text=True,
            env=clean_environ(),
            timeout=PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def digest(clone: Path) -> str:
    """Digest what decides which packages an environment has."""
    total = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt"):
        total.update((clone / name).read_bytes())
    return total.hexdigest()


def kept_extras(environment: Path, wanted: dict[str, object]) -> set[str] | None:
    """Give the extras that are installed and current; None when the environment must be renewed."""
    try:
        stamp = json.loads((environment / STAMP).read_text())
        if {name: stamp[name] for name in wanted} != wanted:
            return None
        return set(stamp["extras"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def with_venv(environment: Path) -> bool:
    """Use the standard library, where the system has not cut ensurepip out of it."""
    return succeeds(sys.executable, "-m", "venv", environment)


def with_uv(environment: Path) -> bool:
    """Use uv, if it is installed."""
    return succeeds("uv", "venv", "--seed", "--python", sys.executable, environment)


def with_virtualenv(environment: Path) -> bool:
    """Use virtualenv, if it is installed."""
    return succeeds("virtualenv", "--python", sys.executable, environment)


def downloaded_pip(folder: Path) -> Iterator[Path]:
    """Give pip's own wheels: those of the system, else one out of a package fetched to ``folder``.

    Fetching needs no root. Where the package lists were never loaded they are loaded into
    ``folder``.
    """
    yield from sorted(PIP_WHEELS.glob("pip-*.whl"))
    impatient = ["-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=20"]
    private = ["-o", f"Dir::State::Lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"]
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    private += impatient
    for options in (impatient, private):
        if options is private and not succeeds("apt-get", *options, "update", cwd=folder):
            return
        if succeeds("apt-get", *options, "download", PIP_PACKAGE, cwd=folder):
            break
    for package in folder.glob("*.deb"):
        if succeeds("dpkg-deb", "-x", package, folder / "unpacked"):
            yield from sorted((folder / "unpacked").rglob("pip-*.whl"))


def with_pip_wheel(environment: Path) -> bool:
    """Make an environment without pip, and have pip's wheel install itself there."""
    if not succeeds(sys.executable, "-m", "venv", "--without-pip", environment):
        return False
    with tempfile.TemporaryDirectory(prefix="ebbtide-pip-") as folder:
        # The package manager fetches as a user of its own when root asks.
        Path(folder).chmod(0o755)
        for wheel in downloaded_pip(Path(folder)):
            install = ("install", "--no-index", "--no-deps", wheel)
            if succeeds(python_of(environment), wheel / "pip", *install):
                return True
    return False


def make(environment: Path) -> str:
    """Make an environment with pip by the first way that works; give its name, empty for none."""
    ways = (
        Way("venv", lambda: with_venv(environment)),
        Way("uv", lambda: with_uv(environment)),
        Way("virtualenv", lambda: with_virtualenv(environment)),
        Way("pip's wheel", lambda: with_pip_wheel(environment)),
    )
    for way in ways:
        shutil.rmtree(environment, ignore_errors=True)
        if way.make() and has_pip(environment):
            return way.name
    shutil.rmtree(environment, ignore_errors=True)
    return ""


def install(environment: Path, extras: set[str]) -> bool:
    """Install the project, editable, with its extras, and compile all byte code once."""
    what = f".[{','.join(sorted(extras))}]" if extras else "."
    python = str(python_of(environment))
    # Twice quiet: what a user's own configuration makes pip warn of is not our news.
    options = ("-qq", "--constraint", "constraints.txt", "--editable", what)
    done = subprocess.run(
        [python, "-I", "-m", "pip", "install", *options],
        check=False,
        cwd=CLONE,
        env=clean_environ(),
    )
    if done.returncode != 0:
        return False
    # By the environment's interpreter, which need not be ours.
    folders = [str(folder) for folder in (CLONE / "libs", CLONE / "services") if folder.is_dir()]
    return succeeds(python, "-I", "-m", "compileall", "-q", *folders)


def only_one() -> int:
    """Wait until nobody else sets up this clone; the lock ends with the process."""
    descriptor = os.open(CLONE, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def was_moved(environment: Path) -> bool:
    """Say whether an environment was made elsewhere: its programs then name a wrong interpreter."""
    try:
        made_for = json.loads((environment / STAMP).read_text())["clone"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(made_for != str(CLONE))


def write_stamp(environment: Path, facts: dict[str, object], extras: set[str]) -> None:
    """Note what the environment holds, once it does."""
    temporary = environment / f"{STAMP}.tmp"
    temporary.write_text(json.dumps({**facts, "extras": sorted(extras)}))
    temporary.replace(environment / STAMP)


def facts_for(python: str) -> dict[str, object]:
    """Give what the stamp of an up-to-date environment says beside its extras."""
    return {"project": digest(CLONE), "clone": str(CLONE), "python": python}


def is_current(wanted: set[str]) -> bool:
    """Say whether the environment whose interpreter runs this needs nothing; quick."""
    kept = kept_extras(ENVIRONMENT, facts_for(f"{sys.version} {sys.base_prefix}"))
    return kept is not None and wanted <= kept


def set_up(wanted: set[str]) -> int:
    """Bring the environment up to date with ``wanted`` extras at least."""
    facts = facts_for(identity(ENVIRONMENT))
    kept = kept_extras(ENVIRONMENT, facts) if facts["python"] else None
    if kept is not None and wanted <= kept:
        return 0
    if was_moved(ENVIRONMENT) or not has_pip(ENVIRONMENT):
        version = ".".join(map(str, sys.version_info[:3]))
        print(f"setting up .venv with Python {version} ({sys.executable}) …", file=sys.stderr)
        if not make(ENVIRONMENT):
            package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
            print(
                f"no way to make an environment with pip: install the package {package}",
                file=sys.stderr,
            )
            return UNUSABLE
        facts["python"] = identity(ENVIRONMENT)
    extras = wanted | (kept or set())
    print(f"installing Ebbtide with {', '.join(sorted(extras)) or 'no extras'} …", file=sys.stderr)
    if not install(ENVIRONMENT, extras):
        print("the installation failed; the lines above say why", file=sys.stderr)
        return 1
    write_stamp(ENVIRONMENT, facts, extras)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--current"]:
        sys.exit(0 if is_current(set(sys.argv[2:])) else 1)
    lock = only_one()
    sys.exit(set_up(set(sys.argv[1:])))
