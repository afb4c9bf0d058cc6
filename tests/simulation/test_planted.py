"""The simulated world proves itself: a planted fault is caught by some seed."""

from collections.abc import Callable

import pytest
from tests.simulation.test_world import run_world

from ebbtide.checkpoint import policy as checkpoint
from ebbtide.contracts.errors import EbbtideError
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.fleet import inbox
from ebbtide.scheduler import policy as scheduler

SEEDS = 200
Plant = Callable[[pytest.MonkeyPatch], None]


def _guards_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        MemoryLog, "_stands", lambda log, unit, _: all(log._takes(one) for one in unit.appends)
    )


def _versions_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLog, "_takes", lambda *_: True)


def _revision_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLog, "_refuse", lambda *_: None)


def _attempts_not_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(inbox, "is_present", lambda job, _: job.is_live)


def _checkpoints_not_fenced(patch: pytest.MonkeyPatch) -> None:
    real = checkpoint.answer

    def answer(*given: object) -> object:
        ack = real(*given)
        return None if ack is not None and ack.refused == "checkpoint.fenced" else ack

    patch.setattr(checkpoint, "answer", answer)


def _released_before_the_verdict(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scheduler, "recovery_may_keep", lambda _: False)


@pytest.mark.parametrize(
    "plant",
    [
        _guards_ignored,
        _versions_ignored,
        _revision_not_compared,
        _attempts_not_fenced,
        _checkpoints_not_fenced,
        _released_before_the_verdict,
    ],
    ids=lambda plant: plant.__name__.strip("_"),
)
async def test_a_planted_fault_is_caught_by_some_seed(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS):
        try:
            await run_world(seed)
        except (EbbtideError, RuntimeError):
            return
    pytest.fail(f"none of {SEEDS} seeds caught it")
