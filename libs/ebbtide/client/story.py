"""What comes back piece by piece: events of a story, and bytes of a log."""

import datetime as dt
from collections.abc import Iterator
from typing import NamedTuple

import msgspec


class StoryEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event as the log holds it; ``body`` has its ``type`` and its facts by name.

    The body is kept open, so that a client older than its platform still shows the whole story.
    """

    epoch: int
    position: int
    stream: str
    version: int
    at: dt.datetime
    workspace: str = ""
    actor: str = ""
    cause: str = ""
    service: str = ""
    trace: str = ""
    body: dict[str, object]

    @property
    def type(self) -> str:
        """Give the event's tag: ``job.submitted``."""
        return str(self.body.get("type", ""))


class LogPiece(NamedTuple):
    """Bytes of one worker's log, from ``offset`` of ``attempt`` on.

    ``missing`` bytes that the log had after this piece were lost with their node.
    """

    attempt: int
    worker: int
    offset: int
    data: bytes
    missing: int = 0


def server_sent(lines: Iterator[bytes]) -> Iterator[tuple[str, str, bytes]]:
    """Read server-sent events: name, id and data of each; comments keep the line alive."""
    name, event_id, data = "", "", b""
    for line in lines:
        field, _, value = line.partition(b": ")
        if field == b"event":
            name = value.decode()
        elif field == b"id":
            event_id = value.decode()
        elif field == b"data":
            data = value
        elif not line and name:
            yield name, event_id, data
            name, data = "", b""
