"""Log lines are a courtesy: a process works on where nobody can take them."""

import subprocess
import sys
from pathlib import Path

TALK = """
from ebbtide.chassis.logs import set_up
import structlog
set_up("test")
structlog.get_logger().warning("said", fact=1)
structlog.get_logger().warning("said", fact=2)
print("on")
"""


def _talk(stderr: Path) -> tuple[int, bytes]:
    with stderr.open("ab") as file:
        done = subprocess.run(
            [sys.executable, "-c", TALK],
            stdout=subprocess.PIPE,
            stderr=file,
            check=False,
            timeout=20,
        )
    return done.returncode, done.stdout


def test_each_line_is_one_json_object(tmp_path: Path) -> None:
    assert _talk(tmp_path / "log") == (0, b"on\n")
    lines = (tmp_path / "log").read_text().splitlines()
    assert [('"fact":1' in line, '"fact":2' in line) for line in lines] == [
        (True, False),
        (False, True),
    ]


def test_a_full_disk_ends_no_process_that_has_something_to_say() -> None:
    assert _talk(Path("/dev/full")) == (0, b"on\n")
