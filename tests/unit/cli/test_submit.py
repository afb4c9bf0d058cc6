"""Putting a job together from a file and flags."""

from pathlib import Path

import pytest

from ebbtide.cli.submit import assemble
from ebbtide.contracts.errors import Malformed

FILE = """
name = "digits"
priority = 3
command = ["python", "train.py"]
code = "src"
env = { A = "1", B = "2" }
[roles.worker]
replicas = 2
resources = { cpu = "2", memory = "1Gi" }
[restart]
max_restarts = 1
backoff_s = 7
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(FILE)
    return path


def test_flags_alone_make_a_job() -> None:
    job = assemble(None, ("true",), {"name": "a", "workers": 3, "gpu": "h100=2", "env": ("X=1=2",)})
    assert job == {
        "name": "a",
        "command": ["true"],
        "env": {"X": "1=2"},
        "roles": {"worker": {"replicas": 3, "resources": {"gpu/h100": "2"}}},
    }


def test_a_file_alone_is_taken_as_it_is_with_its_code_beside_it(file: Path) -> None:
    job = assemble(file, (), {})
    assert job["code"] == str(file.parent / "src")
    assert job["roles"] == {"worker": {"replicas": 2, "resources": {"cpu": "2", "memory": "1Gi"}}}


def test_flags_go_over_the_file_and_leave_the_rest(file: Path) -> None:
    flags = {"priority": 9, "cpu": "4", "env": ("B=3",), "max_restarts": 5, "code": "here"}
    job = assemble(file, ("sh",), flags)
    assert (job["name"], job["priority"], job["command"]) == ("digits", 9, ["sh"])
    assert job["code"] == "here"
    assert job["env"] == {"A": "1", "B": "3"}
    assert job["restart"] == {"max_restarts": 5, "backoff_s": 7}
    assert job["roles"] == {"worker": {"replicas": 2, "resources": {"cpu": "4", "memory": "1Gi"}}}


def test_an_unnamed_gpu_is_any_gpu() -> None:
    job = assemble(None, (), {"gpu": "1"})
    assert job == {"roles": {"worker": {"resources": {"gpu": "1"}}}}


def test_flags_for_workers_need_a_role_when_there_are_several(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("roles: {chief: {}, helper: {}}")
    with pytest.raises(Malformed, match="--role"):
        assemble(path, (), {"workers": 2})
    job = assemble(path, (), {"workers": 2, "role": "helper"})
    assert job["roles"] == {"chief": {}, "helper": {"replicas": 2}}


@pytest.mark.parametrize(
    ("text", "flags", "field"),
    [
        ("env: [1]", {"env": ("A=1",)}, "env"),
        ("restart: no", {"max_restarts": 1}, "restart"),
        ("roles: 5", {"workers": 1}, "roles"),
        ("roles: {worker: x}", {"workers": 1}, "worker"),
        ("name: a", {"env": ("A",)}, "--env"),
        ("name: a", {"env": ("=1",)}, "--env"),
    ],
)
def test_a_flag_that_does_not_fit_the_file_is_named(
    tmp_path: Path, text: str, flags: dict[str, object], field: str
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(Malformed) as caught:
        assemble(path, (), flags)
    assert caught.value.rejected.field == field
