"""The code base tests itself, where a slip would cost."""

import ast
from pathlib import Path

import pytest

from ebbtide.testing.docs import DOCUMENTS

ROOT = Path(__file__).parents[2]
PURE = sorted(
    [
        *(ROOT / "libs/ebbtide/contracts").rglob("*.py"),
        *(ROOT / "libs/ebbtide/model").rglob("*.py"),
        *(ROOT / "services/ebbtide").glob("*/policy.py"),
        *(ROOT / "services/ebbtide").glob("*/model.py"),
    ]
)
IMPURE = {
    "asyncio", "asyncpg", "http", "io", "logging", "nats", "os", "pathlib", "random", "secrets",
    "shutil", "socket", "structlog", "subprocess", "sys", "tempfile", "threading", "time",
    "urllib", "uuid",
}  # fmt: skip
CLOCKS = {"now", "utcnow", "today"}


@pytest.mark.parametrize("path", sorted(DOCUMENTS))
def test_generated_documents_do_not_drift(path: str) -> None:
    assert (ROOT / path).read_text() == DOCUMENTS[path](), "run python -m ebbtide.testing.docs"


@pytest.mark.parametrize("file", PURE, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_pure_file_reaches_no_clock_no_chance_and_no_world(file: Path) -> None:
    tree = ast.parse(file.read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
        )
    }
    called = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    opened = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not imported & IMPURE
    assert not called & CLOCKS
    assert not opened & {"open", "print", "input"}


def test_every_service_has_the_same_files() -> None:
    expected = {"__init__.py", "__main__.py", "model.py", "policy.py", "shell.py"}
    exceptions = {"allinone": expected, "agent": expected, "relay": {"model.py"}}
    for service in sorted((ROOT / "services/ebbtide").iterdir()):
        if service.is_dir() and service.name != "__pycache__":
            files = {file.name for file in service.glob("*.py")}
            missing = expected - files - exceptions.get(service.name, set())
            assert not missing, f"{service.name} lacks {missing}"
