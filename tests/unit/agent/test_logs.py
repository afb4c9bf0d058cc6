"""Logs on their way to the store: what a worker writes is there, even if it cuts its log short."""

from pathlib import Path

import pytest

from ebbtide.agent.logs import SHIP_AFTER_S, SHIP_BYTES, Shipper
from ebbtide.agent.model import Ending, WorkerKey
from ebbtide.agent.policy import Phase
from ebbtide.agent.supervisor import Worker
from ebbtide.chassis.job_logs import CUT, read_range
from ebbtide.contracts.outcomes import EndCause
from ebbtide.testing.builders import job_name

JOB = job_name(1)
LONG = b"x" * SHIP_BYTES


class Desk:
    """One worker's log, a store, and a shipper that can be begun anew as by a new agent."""

    def __init__(self, folder: Path) -> None:
        self.log, self.store = folder / "log", folder / "store"
        key = WorkerKey(job=str(JOB), epoch=1, attempt=1, round=1, worker=0)
        self.worker = Worker(key=key, phase=Phase.RUNNING, slot=0)
        self.now_s = 0.0
        self.begin()

    def begin(self) -> None:
        self.shipper = Shipper(self.store, lambda _: self.log)

    def write(self, data: bytes, *, cut: bool = False) -> None:
        with self.log.open("wb" if cut else "ab") as file:
            file.write(data)

    def look(self) -> None:
        """Look twice, so that whatever there is has waited long enough."""
        for _ in range(2):
            self.now_s += SHIP_AFTER_S
            self.shipper.ship_grown([self.worker], self.now_s)

    def end(self) -> None:
        size = self.log.stat().st_size
        self.worker.end = Ending(cause=EndCause.EXITED, status=0, at_ns=0, log_bytes=size)
        self.shipper.ship_rest(self.worker)

    def stored(self) -> bytes:
        return read_range(self.store, JOB, 1, 0, 0, 1 << 24)[0]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_log_is_stored_as_it_grows(desk: Desk) -> None:
    desk.write(b"one\n")
    desk.look()
    desk.write(b"two\n")
    desk.look()
    assert desk.stored() == b"one\ntwo\n"


def test_what_is_written_after_a_log_was_cut_short_follows_a_notice(desk: Desk) -> None:
    desk.write(LONG)
    desk.look()
    desk.write(b"one\n", cut=True)
    desk.look()
    desk.write(b"two\n")
    desk.look()
    assert desk.stored() == LONG + CUT + b"one\ntwo\n"


def test_a_log_that_was_emptied_is_noticed_before_it_grows_past_what_is_stored(desk: Desk) -> None:
    desk.write(b"one\n")
    desk.look()
    desk.write(b"", cut=True)
    desk.look()
    desk.write(LONG)
    desk.look()
    assert desk.stored() == b"one\n" + CUT + LONG


def test_each_cut_is_told_once(desk: Desk) -> None:
    for number in (b"1", b"2"):
        desk.write(number * 10, cut=True)
        desk.look()
        desk.write(b"", cut=True)
        desk.look()
        desk.look()
    assert desk.stored() == b"1" * 10 + CUT + b"2" * 10 + CUT


def test_what_is_written_between_a_cut_and_the_end_is_stored(desk: Desk) -> None:
    desk.write(LONG)
    desk.look()
    desk.write(b"last words\n", cut=True)
    desk.end()
    assert desk.stored() == LONG + CUT + b"last words\n"


def test_the_next_agent_knows_of_a_cut(desk: Desk) -> None:
    desk.write(b"one\n")
    desk.look()
    desk.write(b"2\n", cut=True)
    desk.look()
    desk.begin()
    desk.write(LONG)
    desk.look()
    assert desk.stored() == b"one\n" + CUT + b"2\n" + LONG


def test_a_notice_that_an_agent_died_before_is_made_up_for(desk: Desk) -> None:
    desk.write(b"one\n")
    desk.look()
    desk.write(b"2\n", cut=True)
    desk.look()
    for chunk in sorted(desk.store.rglob("*.zst"))[1:]:
        chunk.unlink()
    desk.begin()
    desk.look()
    assert desk.stored() == b"one\n" + CUT + b"2\n"


def test_a_log_that_is_stored_whole_is_not_begun_again_by_the_next_agent(desk: Desk) -> None:
    desk.write(b"one\n")
    desk.end()
    desk.begin()
    desk.end()
    assert desk.stored() == b"one\n"
