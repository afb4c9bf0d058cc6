"""The set-up makes a working environment on machines that lack what set-ups like to find."""

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebbtide.testing.servers import server_folder

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
CLONE = Path(__file__).resolve().parents[2]
SYSTEM_PYTHON = Path("/usr/bin/python3")
ORDINARY = "nobody"
NEEDED = (
    "Makefile",
    "README.md",
    "pyproject.toml",
    "constraints.txt",
    "deploy",
    "libs",
    "services",
)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def system_python_fits() -> bool:
    question = "import sys; sys.exit(sys.version_info < (3, 11))"
    return (
        SYSTEM_PYTHON.exists()
        and subprocess.run([SYSTEM_PYTHON, "-c", question], check=False).returncode == 0
    )


needs_system_python = pytest.mark.skipif(
    not system_python_fits(), reason="needs a system Python of 3.11 or newer"
)
needs_apt = pytest.mark.skipif(
    shutil.which("apt-get") is None, reason="needs apt-get, as on Debian and Ubuntu"
)


@pytest.fixture
def clone() -> Iterator[Path]:
    """A clone of its own, in a path with a space, that every user may enter."""
    with server_folder() as folder:
        copy = folder / "my clone"
        copy.mkdir()
        copy.chmod(0o755)
        for name in NEEDED:
            source = CLONE / name
            if source.is_dir():
                shutil.copytree(
                    source, copy / name, ignore=shutil.ignore_patterns("__pycache__", ".venv*")
                )
            else:
                shutil.copy(source, copy)
        yield copy


def minor_of(python: Path) -> int:
    done = subprocess.run(
        [python, "-c", "import sys; print(sys.version_info[1])"],
        check=True,
        capture_output=True,
        text=True,
    )
    return int(done.stdout)


def version_of(clone: Path) -> str:
    done = subprocess.run(
        [clone / ".venv/bin/ebb", "version"], check=True, capture_output=True, text=True
    )
    return done.stdout


def test_a_fresh_clone_in_a_path_with_a_space_is_set_up_and_the_second_time_is_quick(
    clone: Path,
) -> None:
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run([clone / "deploy/bootstrap"], check=True, env=environ)
    assert version_of(clone).startswith("ebbtide ")
    again = subprocess.run(
        [clone / "deploy/bootstrap"], check=True, capture_output=True, env=environ, timeout=5
    )
    assert (again.stdout, again.stderr) == (b"", b"")


@as_root
@needs_system_python
@needs_apt
def test_an_ordinary_user_with_a_clean_environment_and_no_ensurepip_is_set_up(clone: Path) -> None:
    user = pwd.getpwnam(ORDINARY)
    for path in (clone, *clone.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid)
    empty = clone.parent / "empty"
    empty.mkdir()
    hidden = f"/usr/lib/python3.{minor_of(SYSTEM_PYTHON)}/ensurepip"
    command = f"""
        if [ -d {hidden} ]; then mount --bind '{empty}' {hidden}; fi
        if [ -d /usr/share/python-wheels ]; then mount --bind '{empty}' /usr/share/python-wheels; fi
        exec setpriv --reuid {user.pw_uid} --regid {user.pw_gid} --clear-groups \
            env -i /bin/sh '{clone}/deploy/bootstrap'
    """
    subprocess.run(["unshare", "--mount", "/bin/sh", "-ec", command], check=True)
    assert version_of(clone).startswith("ebbtide ")
