"""What the node has to say is said until it is settled, and no state hides a newer one."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from ebbtide.agent import reports
from ebbtide.agent.reports import Outbox, Sender
from ebbtide.chassis.bus import Message
from ebbtide.contracts.agents import Report, ReportAck, WorkerReport, WorkerState
from ebbtide.contracts.ids import JobId, NodeName
from ebbtide.testing.bus import MemoryServer
from ebbtide.testing.waiting import wait_until

RUNNING, ENDED = WorkerState.RUNNING, WorkerState.ENDED


def report(number: int = 1, state: WorkerState = RUNNING) -> WorkerReport:
    return WorkerReport(
        job=JobId(f"job{number}"), epoch=1, attempt=1, round=1, worker=0, state=state
    )


class Listener:
    """Fleet's ear: what it answers, and whether at all, is the test's to say."""

    def __init__(self, server: MemoryServer) -> None:
        self.bus = server.connect("fleet")
        self.agent = server.connect("n1")
        self.outbox = Outbox(Sender(NodeName("n1"), "main", self.agent))
        self.heard: list[Report] = []
        self.settled: list[WorkerReport] = []
        self.epochs = 0
        self.answers = True
        self.settles = True
        self.epoch = 1
        self.outbox.on_settled = self.settled.append
        self.outbox.on_epoch = self._epoch

    def _epoch(self) -> None:
        self.epochs += 1

    async def hear(self, message: Message) -> None:
        said = msgspec.json.decode(message.data, type=Report)
        self.heard.append(said)
        if self.answers:
            ack = ReportAck(
                epoch=self.epoch, position=1, settled=tuple(self.settles for _ in said.workers)
            )
            await self.bus.publish(message.reply, msgspec.json.encode(ack))

    def said(self) -> list[list[str]]:
        return [[one.job for one in report.workers] for report in self.heard]


@pytest.fixture
async def ear(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Listener]:
    monkeypatch.setattr(reports, "AGAIN_S", 0.05)
    made = Listener(MemoryServer())
    await made.bus.subscribe("agent.main.n1.report", made.hear)
    yield made
    await made.outbox.close()
    await made.agent.close()
    await made.bus.close()


async def test_changes_of_one_moment_go_in_one_message(ear: Listener) -> None:
    ear.outbox.put(report(1))
    ear.outbox.put(report(2))
    await wait_until(lambda: len(ear.settled) == 2, "both are settled")
    assert ear.said() == [["job1", "job2"]]


async def test_a_newer_state_replaces_an_older_one(ear: Listener) -> None:
    ear.outbox.put(report(1))
    ear.outbox.put(report(1, ENDED))
    await wait_until(lambda: bool(ear.settled), "it is settled")
    assert [one.state for one in ear.heard[0].workers] == [ENDED]


async def test_a_worker_that_ends_right_after_its_start_is_spoken_of_once(ear: Listener) -> None:
    ear.outbox.put(report(1))
    ear.outbox.put(report(2, ENDED))
    await wait_until(lambda: bool(ear.settled), "the other is settled")
    ear.outbox.put(report(1, ENDED))
    await wait_until(lambda: len(ear.settled) == 2, "both are settled")
    assert ear.said() == [["job2"], ["job1"]]


async def test_what_is_settled_is_not_said_again(ear: Listener) -> None:
    ear.outbox.put(report(1))
    await wait_until(lambda: bool(ear.settled), "it is settled")
    ear.outbox.say_all_again()
    ear.outbox.put(report(2))
    await wait_until(lambda: len(ear.settled) == 2, "the other is settled")
    assert ear.said() == [["job1"], ["job2"]]


async def test_what_is_not_settled_is_said_again(ear: Listener) -> None:
    ear.settles = False
    ear.outbox.put(report(1))
    await wait_until(lambda: len(ear.heard) >= 2, "it was said twice")
    ear.settles = True
    await wait_until(lambda: bool(ear.settled), "it is settled")


async def test_a_request_without_answer_does_not_hold_up_what_comes_later(ear: Listener) -> None:
    ear.answers = False
    ear.outbox.put(report(1))
    await wait_until(lambda: bool(ear.heard), "the first was said")
    ear.answers = True
    ear.outbox.put(report(2))
    await wait_until(lambda: [one.job for one in ear.settled] == ["job2"], "the second is settled")


async def test_the_answer_to_an_older_state_does_not_settle_a_newer_one(ear: Listener) -> None:
    ear.settles = False
    ear.outbox.put(report(1))
    await wait_until(lambda: bool(ear.heard), "the first was said")
    ear.outbox.put(report(1, ENDED))
    ear.settles = True
    await wait_until(lambda: bool(ear.settled), "something is settled")
    assert ear.settled[0].state is ENDED


async def test_what_could_not_be_said_is_said_when_the_bus_is_back(ear: Listener) -> None:
    ear.agent.cut()
    ear.outbox.put(report(1))
    await asyncio.sleep(0)
    ear.agent.restore()
    ear.outbox.say_all_again()
    await wait_until(lambda: bool(ear.settled), "it is settled")


async def test_an_answer_from_a_newer_epoch_is_noticed(ear: Listener) -> None:
    ear.outbox.position = (1, 10)
    ear.epoch = 2
    ear.outbox.put(report(1))
    await wait_until(lambda: ear.epochs == 1, "it is noticed")


async def test_a_newer_epoch_is_noticed_once_however_many_answers_tell_it(ear: Listener) -> None:
    ear.outbox.position = (1, 10)
    ear.epoch = 2
    ear.outbox.put(report(1, ENDED))
    await wait_until(lambda: len(ear.settled) == 1, "it is settled")
    ear.outbox.put(report(2, ENDED))
    await wait_until(lambda: len(ear.settled) == 2, "it is settled")
    assert ear.epochs == 1


async def test_a_report_names_the_newest_desired_state_that_was_seen(ear: Listener) -> None:
    ear.outbox.position = (1, 10)
    ear.outbox.put(report(1))
    await wait_until(lambda: bool(ear.heard), "it was said")
    assert (ear.heard[0].epoch, ear.heard[0].position) == (1, 10)


async def test_all_is_said_again_to_who_has_forgotten_it_settled_or_not(ear: Listener) -> None:
    ear.outbox.put(report(1))
    await wait_until(lambda: bool(ear.settled), "it is settled")
    ear.outbox.say_whole([report(1), report(2)])
    await wait_until(lambda: len(ear.heard) == 2, "all was said")
    assert [len(one.workers) for one in ear.heard] == [1, 2]


async def test_many_workers_go_in_messages_of_bounded_size(ear: Listener) -> None:
    for number in range(600):
        ear.outbox.put(report(number))
    await wait_until(lambda: len(ear.settled) == 600, "all are settled")
    assert max(len(one.workers) for one in ear.heard) <= reports.BATCH
