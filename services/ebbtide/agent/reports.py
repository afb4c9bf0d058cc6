"""What the node has to say that no position of the log has acknowledged: the newest per worker.

It is state, not a queue: a newer state replaces an older one, and what is unsettled is said again
every :data:`AGAIN_S`. An answer may come late or never, so several requests are under way at once;
none waits for another. What must survive the agent is not here but in the workers' records.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
import structlog

from ebbtide.agent.model import WorkerKey
from ebbtide.chassis.bus import Bus
from ebbtide.contracts import subjects
from ebbtide.contracts.agents import Report, ReportAck, WorkerReport, WorkerState
from ebbtide.contracts.errors import Unavailable
from ebbtide.contracts.ids import NodeName

WINDOW_S = 0.001
"""Changes of this window go in one message; it delays ends only, and saves a tenth of the work."""
START_WINDOW_S = 0.01
"""A start is said this much later: a worker that ended meanwhile needs one message and not two."""
AGAIN_S = 2.0
ANSWER_S = 5.0
BATCH = 256
"""Workers in one message: about 100 KiB, of the 1 MiB that a message may have."""
UNDER_WAY_MAX = 16
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ReportAck).decode
_log = structlog.get_logger()


def key_of_report(report: WorkerReport) -> WorkerKey:
    """Name the worker that a report speaks of."""
    return WorkerKey(report.job, report.epoch, report.attempt, report.round, report.worker)


class Sender(NamedTuple):
    """Who speaks, and where to."""

    node: NodeName
    cell: str
    bus: Bus


class Outbox:
    """Unsettled reports of one node.

    ``on_settled`` is called with each report that the log holds, ``on_epoch`` when an answer comes
    from a newer history of the log than was known.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.on_settled: Callable[[WorkerReport], None] = lambda _: None
        self.on_epoch: Callable[[], None] = lambda: None
        self._subject = subjects.agent(sender.cell, sender.node, "report")
        self._unsettled: dict[WorkerKey, WorkerReport] = {}
        self._due: dict[WorkerKey, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._epoch_heard = 0
        self.position = (0, 0)
        """Epoch and position of the newest desired state that was seen."""

    def put(self, report: WorkerReport) -> None:
        """Say a worker's newest state soon."""
        key = key_of_report(report)
        self._unsettled[key] = report
        if report.state is WorkerState.RUNNING and not self._closed:
            loop = asyncio.get_running_loop()
            loop.call_later(START_WINDOW_S, self._say_now, [report])
            return
        self._due[key] = None
        self._wake(WINDOW_S)

    def say_all_again(self) -> None:
        """Have everything that is unsettled said now."""
        self._due.update(dict.fromkeys(self._unsettled))
        self._wake(0.0)

    def say_whole(self, reports: Iterable[WorkerReport]) -> None:
        """Have all of these said, settled or not: whoever listens has forgotten them."""
        self._unsettled.update((key_of_report(one), one) for one in reports)
        self.say_all_again()

    def _wake(self, delay_s: float) -> None:
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._flush)

    def _flush(self) -> None:
        self._timer = None
        while self._due and len(self._tasks) < UNDER_WAY_MAX:
            keys = list(self._due)[:BATCH]
            for key in keys:
                del self._due[key]
            batch = [self._unsettled[key] for key in keys if key in self._unsettled]
            if batch:
                task = asyncio.get_running_loop().create_task(self._say(batch))
                self._tasks.add(task)
                task.add_done_callback(self._said)

    def _said(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("report.failed", error=repr(task.exception()))
        if self._due:
            self._wake(0.0)

    async def _say(self, batch: list[WorkerReport]) -> None:
        epoch, position = self.position
        report = Report(
            node=self._sender.node, workers=tuple(batch), epoch=epoch, position=position
        )
        try:
            answer = await self._sender.bus.request(self._subject, _encode(report), ANSWER_S)
            ack = _decode(answer)
        except (Unavailable, msgspec.MsgspecError) as error:
            _log.debug("report.unanswered", error=str(error))
            ack = ReportAck(epoch=0, position=0, settled=())
        for one, settled in zip(batch, ack.settled, strict=False):
            key = key_of_report(one)
            if settled and self._unsettled.get(key) is one:
                del self._unsettled[key]
                self._due.pop(key, None)
                self.on_settled(one)
        if ack.epoch > max(epoch, self._epoch_heard) and epoch > 0:
            # Once: the next desired state may be long in coming, and every answer until then would
            # have everything said again at once.
            self._epoch_heard = ack.epoch
            self.on_epoch()
        left = [one for one in batch if self._unsettled.get(key_of_report(one)) is one]
        if left and not self._closed:
            asyncio.get_running_loop().call_later(AGAIN_S, self._say_now, left)

    def _say_now(self, batch: list[WorkerReport]) -> None:
        """Say what of these is still the newest and unsettled."""
        for one in batch:
            key = key_of_report(one)
            if self._unsettled.get(key) is one:
                self._due[key] = None
        if self._due:
            self._wake(0.0)

    async def close(self) -> None:
        """Stop speaking."""
        self._closed = True
        if self._timer:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
