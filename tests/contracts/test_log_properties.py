"""What holds for every batch: dropped units leave no trace, and Postgres does what memory does."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from ebbtide.contracts.envelope import Append, Position, Recorded, Unit
from ebbtide.contracts.errors import EbbtideError
from ebbtide.eventlog.log import Decided, Log, Snapshot
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.eventlog.postgres import PostgresLog
from ebbtide.testing.builders import VirtualClock
from ebbtide.testing.logbook import decided, empty, say, unit, without_chance

STREAMS = ("a", "b", "c", "d")

_batches = st.lists(
    st.tuples(
        st.lists(st.sampled_from(STREAMS), max_size=4),
        st.lists(st.sampled_from(STREAMS), max_size=2),
        st.booleans(),
    ),
    max_size=8,
)


def _units(
    wanted: Sequence[tuple[Sequence[str], Sequence[str], bool]], versions: dict[str, int]
) -> tuple[list[Unit], list[Unit]]:
    """Make the units of ``wanted``, of which some are doomed, and those alone that are not."""
    every, sound = [], []
    for streams, unmoved, is_sound in wanted:
        appends = [say(stream, expected=versions.get(stream, 0)) for stream in streams]
        doom = [] if is_sound else [say("taken", expected=0)]
        every.append(unit(*appends, *doom, unmoved=unmoved))
        if is_sound:
            sound.append(unit(*appends, unmoved=unmoved))
    return every, sound


async def _prepared(log: Log) -> Position:
    await log.append(decided(unit(say("taken"), say("a"), say("a"), say("b"))))
    return await log.head()


_VERSIONS = {"a": 2, "b": 1}


async def _recorded(log: Log, units: Sequence[Unit]) -> list[Recorded]:
    read_to = await _prepared(log)
    await log.append(decided(*units, read_to=read_to))
    return [without_chance(event) for event in await log.read(read_to.number, 1_000)]


@given(_batches)
async def test_dropped_units_leave_the_others_as_if_they_had_never_been_in_memory(
    wanted: list[tuple[list[str], list[str], bool]],
) -> None:
    every, sound = _units(wanted, _VERSIONS)
    with_dropped = await _recorded(MemoryLog(VirtualClock()), every)
    assert with_dropped == await _recorded(MemoryLog(VirtualClock()), sound)


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(wanted=_batches)
async def test_dropped_units_leave_the_others_as_if_they_had_never_been_in_postgres(
    postgres_log: PostgresLog, log_url: str, wanted: list[tuple[list[str], list[str], bool]]
) -> None:
    every, sound = _units(wanted, _VERSIONS)
    await empty(log_url)
    with_dropped = await _recorded(postgres_log, every)
    assert with_dropped == await _recorded(MemoryLog(VirtualClock()), sound)


@pytest.fixture
async def postgres_log(log_url: str) -> AsyncIterator[PostgresLog]:
    log = await PostgresLog.connect(log_url)
    yield log
    await log.close()


class Twins(RuleBasedStateMachine):
    """Ask the same of a log in memory and of one in Postgres, and compare what they say."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._memory = MemoryLog(VirtualClock())
        self._postgres = self._runner.run(self._connect())
        self._past: list[Position] = []

    async def _connect(self) -> PostgresLog:
        await empty(self.url)
        return await PostgresLog.connect(self.url)

    def teardown(self) -> None:
        self._runner.run(self._postgres.close())
        self._runner.close()

    def _both(self, ask: Any) -> Any:
        """Ask both, and give what both answered."""
        answers = [self._runner.run(_answer(ask(log))) for log in (self._memory, self._postgres)]
        assert answers[1] == answers[0]
        return answers[0]

    @initialize()
    def begin(self) -> None:
        self._past.append(self._both(lambda log: log.head()))

    def _append(self, draw: st.DataObject) -> Append:
        """Say something that expects mostly what is true."""
        stream = draw.draw(st.sampled_from(STREAMS))
        version = len(self._runner.run(self._memory.read_stream(stream)))
        expected = draw.draw(st.sampled_from([None, version, version, version + 1]))
        return say(stream, expected, closes=draw.draw(st.integers(0, 9)) == 0)

    def _decided(self, draw: st.DataObject) -> Decided:
        read_to = draw.draw(st.sampled_from(self._past[-4:]))
        units = [
            unit(
                *(self._append(draw) for _ in range(draw.draw(st.integers(0, 3)))),
                unmoved=draw.draw(st.lists(st.sampled_from(STREAMS), max_size=2)),
            )
            for _ in range(draw.draw(st.integers(0, 4)))
        ]
        service = draw.draw(st.sampled_from(["quota", "fleet"]))
        present = self._runner.run(self._memory.checkpoint(service)).revision
        revision = draw.draw(st.sampled_from([None, present, present, present + 1]))
        return decided(*units, service=service, revision=revision, read_to=read_to)

    @rule(draw=st.data())
    def append(self, draw: Any) -> None:
        batch = self._decided(draw)
        self._both(lambda log: log.append(batch))
        self._past.append(self._both(lambda log: log.head()))

    @rule(dice=st.integers(0, 5))
    def raise_epoch(self, dice: int) -> None:
        if dice == 0:
            self._past.append(self._both(lambda log: log.raise_epoch()))

    @rule(
        service=st.sampled_from(["quota", "fleet"]),
        position=st.integers(0, 5),
        fold=st.integers(1, 2),
    )
    def save_snapshot(self, service: str, position: int, fold: int) -> None:
        snapshot = Snapshot(
            epoch=self._past[-1].epoch, position=position, fold_version=fold, body=b"picture"
        )
        self._both(lambda log: log.save_snapshot(service, snapshot))
        self._both(lambda log: log.load_snapshots(service, fold))

    @invariant()
    def logs_are_equal(self) -> None:
        if self._past:
            self._both(lambda log: log.read(0, 10_000))
            self._both(lambda log: log.checkpoint("quota"))


async def _answer(asked: Any) -> Any:
    """Give what was answered, without ids and stamps; an error by its kind."""
    try:
        answer = await asked
    except EbbtideError as error:
        return type(error)
    if isinstance(answer, list):
        return [without_chance(one) if isinstance(one, Recorded) else one for one in answer]
    return answer


def test_postgres_answers_as_memory_does(log_url: str) -> None:
    machine = type("Machine", (Twins,), {"url": log_url})
    run_state_machine_as_test(machine, settings=settings(max_examples=40, stateful_step_count=25))
