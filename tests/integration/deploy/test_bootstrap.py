"""The bootstrap finds the Python to use, whatever else lies in the search path."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
REAL = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
# Says who was chosen and with which arguments, in place of making an environment.
WITNESS = "import os, sys\nprint(os.environ['CHOSEN'], *sys.argv[1:])\n"


class Machine:
    """A clone and a search path in which programs are put by hand."""

    def __init__(self, folder: Path) -> None:
        self.deploy = folder / "a clone" / "deploy"
        self.deploy.mkdir(parents=True)
        shutil.copy(DEPLOY / "bootstrap", self.deploy)
        (self.deploy / "environment.py").write_text(WITNESS)
        self.folders = [folder / "first folder", folder / "second"]
        for path in self.folders:
            path.mkdir()
        (self.folders[1] / "dirname").symlink_to("/usr/bin/dirname")

    def put(self, name: str, body: str, folder: int = 0, mode: int = 0o755) -> None:
        program = self.folders[folder] / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(mode)

    def put_real(self, name: str, folder: int = 0) -> None:
        self.put(name, f'CHOSEN={name} exec "{REAL}" "$@"', folder)

    def put_too_old(self, name: str, folder: int = 0) -> None:
        # An old Python runs the question and answers it with a status.
        self.put(name, "exit 1", folder)

    def put_shim(self, name: str, folder: int = 0) -> None:
        self.put(name, f"echo '{name}: command not found' >&2; exit 127", folder)

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["/bin/sh", str(self.deploy / "bootstrap"), *arguments],
            check=False,
            capture_output=True,
            text=True,
            env={"PATH": ":".join(map(str, self.folders))},
            timeout=30,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_newest_python_is_chosen(machine: Machine) -> None:
    for name in ("python3", "python3.11", "python3.13", "python3.12"):
        machine.put_real(name)
    assert machine.run().stdout == "python3.13\n"


def test_a_shim_that_leads_nowhere_does_not_hide_the_real_one(machine: Machine) -> None:
    machine.put_shim("python3.14")
    machine.put_shim("python3.11")
    machine.put_real("python3.11", folder=1)
    assert machine.run().stdout == "python3.11\n"


def test_a_python_that_is_too_old_is_passed_over(machine: Machine) -> None:
    machine.put_too_old("python3")
    machine.put_real("python3", folder=1)
    assert machine.run().stdout == "python3\n"


def test_a_python_that_the_user_may_not_execute_is_passed_over(machine: Machine) -> None:
    machine.put("python3.12", "exit 0", mode=0o644)
    machine.put_real("python3.11")
    assert machine.run().stdout == "python3.11\n"


def test_extras_are_handed_on(machine: Machine) -> None:
    machine.put_real("python3")
    assert machine.run("examples", "test").stdout == "python3 examples test\n"


def test_without_a_fitting_python_one_line_names_the_package(machine: Machine) -> None:
    machine.put_too_old("python3")
    done = machine.run()
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "python3.11" in done.stderr


def test_a_current_environment_is_asked_before_any_search(machine: Machine) -> None:
    interpreter = machine.deploy.parent / ".venv" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text('#!/bin/sh\ntest "$3" = --current\n')
    interpreter.chmod(0o755)
    done = machine.run()
    assert (done.returncode, done.stdout) == (0, "")
