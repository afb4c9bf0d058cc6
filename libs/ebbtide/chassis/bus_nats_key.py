"""Watches one key of a bucket with rights to that key only: listens to it, and reads it.

Writes are told on the key's own subject after they were accepted. That may be missed, so the key is
also read at the start, after every re-connection and now and then. It must not hand over an older
value after a newer one, unless the bucket was lost and made anew.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from nats.aio.client import Client
from nats.aio.msg import Msg

from ebbtide.chassis.bus import Entry, Watcher
from ebbtide.chassis.bus_nats_jetstream import SEQUENCE
from ebbtide.chassis.bus_nats_link import Link
from ebbtide.chassis.bus_nats_listening import quietly
from ebbtide.chassis.delivery import Feed, hand_over
from ebbtide.contracts.errors import EbbtideError
from ebbtide.contracts.subjects import kv_changed

READ_AGAIN_S = 30.0
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 2.0
LAST_SEQUENCE = "Nats-Last-Sequence"


class _Seen(NamedTuple):
    """A value heard or read; a revision below ``floor`` tells that the bucket is a new one."""

    entry: Entry
    floor: int


class KeyWatch:
    """Hands each newest value of one key to ``watcher``."""

    def __init__(
        self,
        link: Link,
        key: tuple[str, str],
        read: Callable[[], Awaitable[Entry | None]],
        watcher: Watcher,
    ) -> None:
        self._link = link
        self._key = key[1]
        self._subject = kv_changed(*key)
        self._read = read
        self._watcher = watcher
        self._feed: Feed[_Seen] = Feed(self._take, self._subject)
        self._last: Entry | None = None
        self._due = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], Awaitable[None]] | None = None

    async def begin(self) -> None:
        """Watch from now on; if the key cannot be read yet, as soon as it can."""
        await self._link.add(self)
        self._due.clear()
        if not await self._look():
            self._due.set()
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def open(self, client: Client) -> None:
        """Listen on a fresh connection, and have the key read."""
        subscription = await client.subscribe(self._subject, cb=self._receive)
        self._unsubscribe = subscription.unsubscribe
        self._due.set()

    async def drain(self) -> None:
        """Stop at once: what is missed is read again."""
        await self.close()

    async def close(self) -> None:
        """Stop watching."""
        self._link.remove(self)
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        await quietly(unsubscribe)
        await self._feed.close()

    async def _keep(self) -> None:
        delay_s = RETRY_FIRST_S
        while True:
            try:
                async with asyncio.timeout(READ_AGAIN_S):
                    await self._due.wait()
            except TimeoutError:
                pass
            await self._link.up()
            self._due.clear()
            if await self._look():
                delay_s = RETRY_FIRST_S
                continue
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, RETRY_MAX_S)
            self._due.set()

    async def _look(self) -> bool:
        """Read the key; say whether that was possible."""
        floor = self._last.revision if self._last is not None else 0
        try:
            entry = await self._read()
        except EbbtideError:
            return False
        if entry is not None:
            self._feed.put(_Seen(entry, floor))
        return True

    async def _receive(self, msg: Msg) -> None:
        headers = msg.headers or {}
        revision = int(headers.get(SEQUENCE, 0))
        # The first write of a key in its bucket: whatever was known is of a bucket that was lost.
        floor = revision + 1 if headers.get(LAST_SEQUENCE) == "0" else 0
        if not self._feed.put(_Seen(Entry(self._key, msg.data, revision), floor)):
            self._due.set()

    async def _take(self, seen: _Seen) -> None:
        entry, last = seen.entry, self._last
        if entry == last:
            return
        if last is not None and seen.floor <= entry.revision <= last.revision:
            return
        self._last = entry
        await hand_over(self._watcher, entry, self._subject)
