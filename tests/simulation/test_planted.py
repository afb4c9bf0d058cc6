"""The simulated world proves itself: a planted fault is caught by some seed."""

from collections.abc import Callable, Sequence

import msgspec
import pytest

from ebbtide.chassis.bus import Outgoing
from ebbtide.checkpoint import policy as checkpoint
from ebbtide.contracts.envelope import Recorded
from ebbtide.eventlog.log import Decided
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.fleet import inbox
from ebbtide.fleet import policy as fleet
from ebbtide.relay.shell import Relay
from ebbtide.scheduler import policy as scheduler
from ebbtide.testing.bus import MemoryBus
from ebbtide.testing.sim.ground import LEASE_S
from ebbtide.testing.sim.machines import Hands
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
    """The log takes a decision from each replica that made it."""
    real = MemoryLog._refuse

    def refuse(log: MemoryLog, decided: Decided) -> None:
        real(log, msgspec.structs.replace(decided, revision=None))

    patch.setattr(MemoryLog, "_refuse", refuse)


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
    """The relay overlooks an event that was committed late, and numbers the others without it."""
    send, put = Relay._send, MemoryBus.publish_run

    async def forgetful(relay: Relay, events: Sequence[Recorded]) -> None:
        late = [one for one in events if one.position % 5]
        if late:
            await send(relay, late)

    async def unguarded(bus: MemoryBus, messages: Sequence[Outgoing]) -> None:
        stream = bus.hub.stream_for(messages[0].subject)
        first = stream.next if stream is not None else 0
        renumbered = [one._replace(sequence=first + n) for n, one in enumerate(messages)]
        await put(bus, renumbered)

    patch.setattr(Relay, "_send", forgetful)
    patch.setattr(MemoryBus, "publish_run", unguarded)


def _lease_counted_from_receipt(patch: pytest.MonkeyPatch) -> None:
    """An agent counts on its lease from when the answer came, which may be late."""

    def write(hands: Hands, at_s: float) -> None:
        if hands._machine is not None:
            now_s = hands._machine.ground.loop.time()
            hands._machine.set_deadline(now_s + LEASE_S if at_s else 0.0)

    patch.setattr(Hands, "write", write)


@pytest.mark.timeout(300)
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
        _a_message_skipped_by_the_relay,
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
        except Exception as error:  # noqa: BLE001  # any way of being caught will do
            print(f"caught by seed {seed}: {str(error)[:150]}")
            return
    pytest.fail(f"none of {SEEDS} seeds caught it")
