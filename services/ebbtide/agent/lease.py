"""The node's lease: the right to let workers run that end with it.

One key per node, renewed each third of a lease by a write at the agent's own last revision. The
deadline counts from *before* the write was sent that was acknowledged, on the clock that goes on
in suspend, and stands in a file that every sitter reads: so it holds also when this agent is dead.
Decisions are pure; :class:`LeaseHolder` does what they say.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import structlog

from ebbtide.chassis.bus import Bus, Entry
from ebbtide.contracts.agents import Lease
from ebbtide.contracts.errors import Conflict, EbbtideError, NotFound
from ebbtide.contracts.ids import NodeName

RENEWALS = 3
"""Renewals in a lease: two may be lost."""
FIRST_PAUSE_S = 0.02
PAUSE_MAX_S = 1.0
"""Pauses before a renewal that failed is tried again: short at first, bounded."""
GONE_LOOK_S = 0.1
_WIDTH = 20
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Lease).decode
_log = structlog.get_logger()


class Own(NamedTuple):
    """Who renews: the holder is the agent's state folder, whatever process serves it."""

    node: NodeName
    boot: str
    holder: str
    lease_s: float


class Held(NamedTuple):
    """What is known of the key: its revision as last seen, and how often it was renewed."""

    revision: int
    renewals: int


class TakeOver(NamedTuple):
    """The key is ours to write, at this revision."""

    held: Held


class GiveUp(NamedTuple):
    """Somebody else wrote the key.

    What ends with the lease must be gone before it is taken anew.
    """

    held: Held
    why: str


def judge(own: Own, entry: Entry | None) -> TakeOver | GiveUp:
    """Decide by the key's present value, at the start or after a write was refused.

    Our own value means that an answer was lost, none means that the bucket was. Anything else is
    the end of what we held.
    """
    if entry is None:
        return TakeOver(Held(0, 0))
    try:
        value = _decode(entry.value)
    except msgspec.MsgspecError:
        return GiveUp(Held(entry.revision, 0), "its value cannot be read")
    held = Held(entry.revision, value.count)
    if value.taken:
        return GiveUp(held, "it was taken away")
    if value.holder != own.holder:
        return GiveUp(held, f"it is held by {value.holder}")
    return TakeOver(held)


def next_value(own: Own, held: Held) -> Lease:
    """Say what the next renewal writes."""
    return Lease(
        node=own.node,
        boot=own.boot,
        holder=own.holder,
        count=held.renewals + 1,
        lease_ms=round(own.lease_s * 1000),
    )


class Deadline(Protocol):
    """Where the deadline stands; whoever ends workers reads it there."""

    def write(self, at_s: float) -> None:
        """Set the deadline; 0 is long ago."""
        ...

    def read(self) -> float:
        """Give the deadline, 0 if there is none."""
        ...


class DeadlineFile:
    """The deadline as sitters read it.

    In nanoseconds since boot, and twice, so that half a write is seen.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, at_s: float) -> None:
        """Set the deadline; 0 is long ago."""
        word = b"%0*d" % (_WIDTH, max(0, int(at_s * 1e9)))
        os.pwrite(self._fd, word + b" " + word + b"\n", 0)

    def read(self) -> float:
        """Give the deadline, 0 if there is none."""
        words = os.pread(self._fd, 2 * _WIDTH + 2, 0).split()
        return int(words[0]) / 1e9 if len(words) == 2 and words[0] == words[1] else 0.0

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)


class Ties(NamedTuple):
    """What the lease is tied to.

    ``stands`` hears whether it holds; ``is_gone`` says that nothing is left that ends with it.
    """

    stands: Callable[[bool], None]
    is_gone: Callable[[], bool]
    now_s: Callable[[], float]


class LeaseHolder:
    """Renews the lease of one node, and gives it up when it is another's."""

    def __init__(self, own: Own, bus: Bus, bucket: str, file: Deadline, ties: Ties) -> None:
        self._own = own
        self._bus = bus
        self._bucket = bucket
        self._file = file
        self._ties = ties
        self._held: Held | None = None
        self._count = 0  # of this life, so that no two values are alike where a bucket was lost
        self._pause_s = FIRST_PAUSE_S
        self._poked = asyncio.Event()

    async def run(self) -> None:
        """Hold the lease until cancelled."""
        while True:
            self._poked.clear()
            pause_s = await self._step()
            try:
                async with asyncio.timeout(pause_s):
                    await self._poked.wait()
            except TimeoutError:
                continue

    def poke(self) -> None:
        """Renew now: the server was away, or there is reason to look."""
        self._poked.set()

    async def _step(self) -> float:
        """Renew once; give how long to wait then."""
        try:
            if self._held is None:
                self._held = await self._take()
            sent_at_s = self._ties.now_s()
            renewals = max(self._held.renewals, self._count)
            value = next_value(self._own, self._held._replace(renewals=renewals))
            key = str(self._own.node)
            revision = await self._bus.kv_put(
                self._bucket, key, _encode(value), self._held.revision
            )
        except Conflict:
            self._held = None
            return FIRST_PAUSE_S
        except NotFound:
            self._held = None
            return self._longer()
        except EbbtideError as error:
            _log.debug("lease.not_renewed", error=str(error))
            self._ties.stands(self._file.read() > self._ties.now_s())
            return self._longer()
        self._held, self._count = Held(revision, value.count), value.count
        self._file.write(sent_at_s + self._own.lease_s)
        self._ties.stands(True)
        self._pause_s = FIRST_PAUSE_S
        return self._own.lease_s / RENEWALS

    def _longer(self) -> float:
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        return self._pause_s

    async def _take(self) -> Held:
        """Read the key; if it is another's, first end what ends with the lease."""
        verdict = judge(self._own, await self._bus.kv_get(self._bucket, str(self._own.node)))
        if isinstance(verdict, TakeOver):
            return verdict.held
        _log.warning("lease.lost", node=self._own.node, why=verdict.why)
        self._ties.stands(False)
        self._file.write(0.0)
        while not self._ties.is_gone():  # noqa: ASYNC110 - ends are told to another
            await asyncio.sleep(GONE_LOOK_S)
        return verdict.held
