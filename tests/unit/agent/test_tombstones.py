"""Last words on workers: kept, bounded, and there after a restart."""

from pathlib import Path

import pytest

from ebbtide.agent import tombstones
from ebbtide.agent.reports import key_of_report
from ebbtide.agent.tombstones import Tombstones
from ebbtide.contracts.agents import WorkerReport, WorkerState
from ebbtide.contracts.ids import JobId
from ebbtide.contracts.outcomes import EndCause


def report(number: int) -> WorkerReport:
    return WorkerReport(
        job=JobId(f"job{number}"),
        epoch=1,
        attempt=1,
        round=1,
        worker=0,
        state=WorkerState.ENDED,
        cause=EndCause.EXITED,
        status=number,
    )


def test_what_was_written_is_known_after_a_restart(tmp_path: Path) -> None:
    Tombstones(tmp_path / "t").write([report(1), report(2)])
    assert Tombstones(tmp_path / "t").reports() == [report(1), report(2)]


def test_a_line_cut_short_by_a_crash_is_passed_over(tmp_path: Path) -> None:
    Tombstones(tmp_path / "t").write([report(1), report(2)])
    body = (tmp_path / "t").read_bytes()
    (tmp_path / "t").write_bytes(body[:-10])
    assert Tombstones(tmp_path / "t").reports() == [report(1)]


def test_only_the_newest_are_kept_and_the_file_stays_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tombstones, "KEPT", 3)
    kept = Tombstones(tmp_path / "t")
    forgotten = []
    for number in range(20):
        kept.write([report(number)])
        forgotten += kept.keep([report(number)])
    assert kept.reports() == [report(17), report(18), report(19)]
    assert forgotten == [key_of_report(report(number)) for number in range(17)]
    assert len((tmp_path / "t").read_bytes().splitlines()) <= 6
    assert Tombstones(tmp_path / "t").reports() == kept.reports()
