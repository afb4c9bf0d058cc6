"""Carries workers' word of sealed checkpoints to the checkpoint service, and loses none.

A worker is answered once its word is on the node's disk; the word is then said by request until it
is acknowledged or refused for good. An order is not kept: the catalogue looks at steps.
"""

import asyncio
import hashlib
import os
from pathlib import Path

import msgspec
import structlog

from ebbtide.agent.doors import Said
from ebbtide.agent.model import WorkerKey
from ebbtide.chassis.bus import Bus
from ebbtide.contracts.agents import CheckpointAck, CheckpointReport
from ebbtide.contracts.errors import Unavailable
from ebbtide.contracts.ids import JobId

PENDING_MAX = 1024
ANSWER_S = 5.0
AGAIN_S = 2.0
_log = structlog.get_logger()


class Checkpoints:
    """Words of checkpoints that nobody has acknowledged yet, one file each."""

    def __init__(self, folder: Path, bus: Bus, subject: str) -> None:
        self._folder = folder
        self._bus = bus
        self._subject = subject
        self._woken = asyncio.Event()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for half_written in folder.glob(".*"):
            half_written.unlink()  # nobody was told that it was kept

    async def take(self, key: WorkerKey, said: Said) -> str:
        """Keep a worker's word; give what is wrong with it."""
        report = CheckpointReport(
            job=JobId(key.job),
            epoch=key.epoch,
            attempt=key.attempt,
            round=key.round,
            worker=key.worker,
            step=said.step,
            folder=said.folder,
            digest=said.digest,
            bytes=said.bytes,
        )
        body = msgspec.json.encode(report)
        try:
            msgspec.json.decode(body, type=CheckpointReport)
        except msgspec.ValidationError as error:
            return f"the catalogue would not take this checkpoint: {error}"
        wrong = await asyncio.to_thread(self._write, body)
        self._woken.set()
        return wrong

    def _write(self, body: bytes) -> str:
        if sum(1 for _ in self._folder.iterdir()) >= PENDING_MAX:
            return "too many checkpoints wait to be committed"
        name = hashlib.blake2b(body, digest_size=16).hexdigest()
        new = self._folder / f".{name}"
        try:
            with new.open("wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._folder / name)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return ""

    async def run(self) -> None:
        """Say what waits until it is acknowledged; until cancelled."""
        while True:
            self._woken.clear()
            left = False
            for path in sorted(self._folder.iterdir()):
                if not path.name.startswith("."):
                    left |= not await self._say(path)
            try:
                async with asyncio.timeout(AGAIN_S if left else None):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _say(self, path: Path) -> bool:
        body = await asyncio.to_thread(path.read_bytes)
        try:
            answer = await self._bus.request(self._subject, body, ANSWER_S)
            ack = msgspec.json.decode(answer, type=CheckpointAck)
        except (Unavailable, msgspec.MsgspecError) as error:
            _log.debug("checkpoint.unanswered", error=str(error))
            return False
        if not ack.refused and not ack.position:
            return False
        if ack.refused:
            _log.warning("checkpoint.refused", code=ack.refused, report=body.decode())
        await asyncio.to_thread(path.unlink)
        return True
