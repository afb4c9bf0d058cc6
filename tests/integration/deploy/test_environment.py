"""The environment is made by the first way that works, and left alone while nothing changed."""

import ensurepip
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "deploy" / "environment.py"
BUNDLED_WHEELS = Path(ensurepip.__file__).parent / "_bundled"


@pytest.fixture
def script(tmp_path: Path) -> ModuleType:
    """The script as it lies in a clone of its own."""
    folder = tmp_path / "clone" / "deploy"
    folder.mkdir(parents=True)
    copy = Path(shutil.copy(SCRIPT, folder))
    for name in ("pyproject.toml", "constraints.txt"):
        (folder.parent / name).write_text("one\n")
    spec = importlib.util.spec_from_file_location("environment", copy)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stamped(script: ModuleType, *extras: str) -> None:
    environment: Path = script.ENVIRONMENT
    environment.mkdir(exist_ok=True)
    facts = script.facts_for(f"{sys.version} {sys.base_prefix}")
    script.write_stamp(environment, facts, set(extras))


def test_what_was_set_up_is_current(script: ModuleType) -> None:
    stamped(script, "examples", "test")
    assert script.is_current({"examples"})


def test_an_extra_that_is_missing_makes_it_stale(script: ModuleType) -> None:
    stamped(script, "examples")
    assert not script.is_current({"examples", "test"})


def test_changed_constraints_make_it_stale(script: ModuleType) -> None:
    stamped(script)
    (script.CLONE / "constraints.txt").write_text("two\n")
    assert not script.is_current(set())


def test_another_interpreter_makes_it_stale(script: ModuleType) -> None:
    stamped(script)
    assert script.kept_extras(script.ENVIRONMENT, script.facts_for("3.99")) is None


def test_a_moved_clone_is_made_anew(script: ModuleType) -> None:
    stamped(script)
    stamp = script.ENVIRONMENT / script.STAMP
    stamp.write_text(json.dumps({**json.loads(stamp.read_text()), "clone": "/elsewhere"}))
    assert script.was_moved(script.ENVIRONMENT)


def test_a_damaged_stamp_makes_it_stale(script: ModuleType) -> None:
    stamped(script)
    (script.ENVIRONMENT / script.STAMP).write_text("{")
    assert not script.is_current(set())


@pytest.mark.skipif(not BUNDLED_WHEELS.is_dir(), reason="needs the wheel of pip that Python brings")
def test_a_wheel_of_pip_installs_itself(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", sys._base_executable)  # type: ignore[attr-defined] # not an environment's
    monkeypatch.setattr(script, "PIP_WHEELS", BUNDLED_WHEELS)
    assert script.with_pip_wheel(script.ENVIRONMENT)
    assert script.has_pip(script.ENVIRONMENT)


def test_when_no_way_works_one_line_names_the_package(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert script.set_up(set()) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].endswith(f"install the package python3.{sys.version_info[1]}-venv")
    assert not script.ENVIRONMENT.exists()
