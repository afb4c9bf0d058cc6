"""The reader's look at the head races with commits of its own process."""

import asyncio

from ebbtide.contracts.envelope import Position
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.eventlog.reader import Reader
from ebbtide.testing.builders import VirtualClock
from ebbtide.testing.logbook import Listening, decided, say, unit
from ebbtide.testing.waiting import wait_until


class SlowHead(MemoryLog):
    """A log whose head is read, and then told late."""

    def __init__(self) -> None:
        super().__init__(VirtualClock())
        self.asked = asyncio.Event()
        self.tell = asyncio.Event()
        self.tell.set()

    async def head(self) -> Position:
        head = await super().head()
        self.asked.set()
        await self.tell.wait()
        return head


async def test_a_commit_while_the_head_is_being_read_is_no_new_history() -> None:
    log = SlowHead()
    reader = Reader(log, poll_s=0.01)
    log.on_commit = reader.offer
    listening = Listening()
    reader.attach(listening, after=0)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(reader.run())
        await wait_until(lambda: reader.position.epoch == 1, "the start")
        log.tell.clear()
        log.asked.clear()
        await log.asked.wait()
        await log.append(decided(unit(say("a"))))
        log.tell.set()
        await log.append(decided(unit(say("b")), read_to=Position(1, 1)))
        await wait_until(lambda: listening.positions == [1, 2], "both events")
        await asyncio.sleep(0.05)
        assert not running.done()
        running.cancel()
