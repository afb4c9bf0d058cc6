"""What a process loads: the web framework is api's alone, and a worker's import brings nothing."""

import subprocess
import sys

import pytest

WEB = ("litestar", "uvicorn", "httptools")
HEAVY = (*WEB, "httpx", "pydantic", "click", "numpy", "rich", "pygments")


def loaded_by(module: str) -> set[str]:
    """Give the top-level modules that importing ``module`` loads in a fresh process."""
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "service",
    ["quota", "scheduler", "fleet", "recovery", "checkpoint", "node_health", "relay", "agent"],
)
def test_a_service_but_api_loads_no_web_framework(service: str) -> None:
    assert not loaded_by(f"ebbtide.{service}.__main__") & set(HEAVY)


def test_all_services_together_load_nothing_that_prints_to_consoles() -> None:
    assert not loaded_by("ebbtide.allinone.control") & {"rich", "pygments"}


def test_the_sdk_loads_no_heavy_library() -> None:
    assert not loaded_by("ebbtide.client") & {*HEAVY, "asyncio", "yaml"}


def test_a_training_scripts_import_loads_the_standard_library_only() -> None:
    ours = {name for name in loaded_by("ebbtide.train") if not name.startswith("_")}
    assert ours - set(sys.stdlib_module_names) <= {"ebbtide", "sitecustomize", "usercustomize"}
