"""The disk that holds the log and everything else is full: nothing is lost, and room mends it."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.conftest import Platform, wait_for

from ebbtide.contracts.errors import EbbtideError
from ebbtide.testing.checks import check_log

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(400)]

DISK = "400m"
FULL_S = 15.0


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small disk of its own."""
    folder = Path(tempfile.mkdtemp(prefix="ebb-disk-", dir="/tmp"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0711", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        folder.rmdir()
        pytest.skip("needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def _fill(disk: Path) -> Path:
    """Take the last byte."""
    file = disk / "ballast"
    with file.open("wb", buffering=0) as out:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    out.write(b"x" * size)
            except OSError:
                continue
    return file


def _submit(platform: Platform, *command: str) -> str:
    printed = platform.try_ebb("submit", "--name", "disk", "--json", "--", *command, timeout_s=60)
    return str(json.loads(printed.stdout)["id"]) if printed.returncode == 0 else ""


def _phase(platform: Platform, job: str) -> str:
    try:
        return platform.client.get(job).phase
    except EbbtideError:
        return ""


@pytest.mark.parametrize("mode", ["--one", "--split"])
def test_a_full_disk_loses_nothing_and_room_mends_it(disk: Path, mode: str) -> None:
    platform = Platform(disk / "home")
    words = ["--split"] if mode == "--split" else []
    platform.ebb("up", "--nodes", "2", "--capacity", "cpu=4,memory=4Gi", *words)
    try:
        platform.wait_for_nodes(2)
        runs = _submit(platform, "sleep", "600")
        ends = _submit(platform, "sleep", str(FULL_S / 3))
        wait_for(lambda: platform.workers(runs) and platform.workers(ends), "two running workers")
        _, pid = platform.workers(runs)[0]
        ballast = _fill(disk)
        accepted = []
        full_until = time.monotonic() + FULL_S
        while time.monotonic() < full_until:
            accepted.append(_submit(platform, "true"))
        os.kill(pid, 0)
        ballast.unlink()
        wait_for(lambda: _phase(platform, ends) == "succeeded", "the job that ended meanwhile", 90)
        accepted.append("")
        while not accepted[-1]:
            accepted.append(_submit(platform, "true"))
        for job in filter(None, accepted):
            wait_for(lambda: _phase(platform, job) == "succeeded", f"the end of {job}")  # noqa: B023
        assert platform.workers(runs)[0][1] == pid, "the running worker noticed nothing"
        platform.ebb("stop", runs)
        wait_for(lambda: _phase(platform, runs) == "stopped", "the stop")
        wait_for(lambda: not any(node.jobs for node in platform.client.nodes()), "no place is held")
        check_log(platform.events())
    finally:
        platform.client.close()
        platform.try_ebb("down", "--force")
