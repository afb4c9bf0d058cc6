"""The simulated world proves itself: a planted fault is caught by some seed."""

from collections.abc import Callable, Sequence

import msgspec
import pytest

from ebbtide.agent import lease
from ebbtide.agent import policy as agent
from ebbtide.chassis import bus
from ebbtide.checkpoint import policy as checkpoint
from ebbtide.contracts.envelope import Recorded
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.fleet import inbox
from ebbtide.fleet import policy as fleet
from ebbtide.recovery import policy as recovery
from ebbtide.relay.shell import Relay
from ebbtide.scheduler import policy as scheduler
from ebbtide.testing.sim.plan import draw
from ebbtide.testing.sim.world import run

SEEDS = 200
Plant = Callable[[pytest.MonkeyPatch], None]


def _fence_check_off(patch: pytest.MonkeyPatch) -> None:
    """The catalogue commits what an attempt that is past has saved."""
    real = checkpoint.answer

    def answer(*given: object) -> object:
        ack = real(*given)
        return None if ack is not None and ack.refused == "checkpoint.fenced" else ack

    patch.setattr(checkpoint, "answer", answer)


def _attempts_not_fenced(patch: pytest.MonkeyPatch) -> None:
    """Fleet takes any attempt's report for one of the live attempt."""
    patch.setattr(inbox, "is_present", lambda job, _: job.is_live)
    patch.setattr(fleet, "is_present", lambda job, _: job.is_live)


def _revision_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLog, "_refuse", lambda *_: None)


def _guards_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        MemoryLog, "_stands", lambda log, unit, _: all(log._takes(one) for one in unit.appends)
    )


def _versions_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLog, "_takes", lambda *_: True)


def _released_before_the_end_is_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scheduler, "recovery_may_keep", lambda _: False)


def _a_duplicate_report_applied_twice(patch: pytest.MonkeyPatch) -> None:
    """Fleet does not look whether the log holds a worker's start or end already."""
    real = fleet._worker
    patch.setattr(
        fleet, "_worker", lambda picture, one, report, *_: real(picture, one, report, {}, {})
    )


def _a_message_skipped_by_the_relay(patch: pytest.MonkeyPatch) -> None:
    """The relay counts a late committer's event as published, and no reader looks for it."""
    raise NotImplementedError


def _lease_counted_from_receipt(patch: pytest.MonkeyPatch) -> None:
    import asyncio

    patch.setattr(
        lease,
        "deadline_s",
        lambda own, _sent_at_s: asyncio.get_running_loop().time() + own.lease_s,
    )


@pytest.mark.parametrize(
    "plant",
    [
        _fence_check_off,
        _attempts_not_fenced,
        _revision_not_compared,
        _guards_dropped,
        _versions_ignored,
        _released_before_the_end_is_known,
        _a_duplicate_report_applied_twice,
        _lease_counted_from_receipt,
    ],
    ids=lambda plant: plant.__name__.strip("_"),
)
def test_a_planted_fault_is_caught_by_some_seed(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS):
        try:
            run(draw(seed))
        except Exception as error:
            print(f"caught by seed {seed}: {str(error)[:150]}")
            return
    pytest.fail(f"none of {SEEDS} seeds caught it")
