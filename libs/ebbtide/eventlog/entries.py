"""What both logs ask of an append before they take it: bodies that fit, texts that can be stored.

A refusal here concerns one caller only. It comes before anything is gathered with what others say,
so that nobody's mistake can fail another's append. Nothing here touches a database.
"""

import datetime as dt
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import msgspec

from ebbtide.contracts.envelope import Append, Recorded
from ebbtide.contracts.errors import InvariantBroken, Malformed, Rejected
from ebbtide.contracts.events import tag_of
from ebbtide.contracts.upcasts import encode_body
from ebbtide.eventlog.log import Decided

BODY_BYTES_MAX = 64 * 1024
"""Larger things are named by their content hash; a relay's message must fit the bus."""

OnCommit = Callable[[list[Recorded]], None]
"""Is handed each commit's events in order, before the appends return; must not block or raise."""


class Stamps(Protocol):
    """What stamps events: the part of a clock that a log needs."""

    def now(self) -> dt.datetime:
        """Give the wall clock, aware, in UTC."""
        ...


class Entry(msgspec.Struct, frozen=True):
    """One append, ready to be stored: the unit that it belongs to, its tag and its encoded body."""

    unit: int
    append: Append
    tag: str
    body: bytes


def entries_of(decided: Decided) -> list[Entry]:
    """Encode every append of ``decided`` in order.

    Raises:
        Malformed: a body is too large, or a text cannot be stored.
        InvariantBroken: the batch says something after it closed the stream, or has no time zone.
    """
    if decided.decided_at.tzinfo is None:
        raise InvariantBroken(f"{decided.service} decided at a time without a zone")
    entries = list(_encoded(decided))
    if any(entry.append.closes for entry in entries):
        _refuse_after_close(decided.service, entries)
    return entries


def _encoded(decided: Decided) -> Iterator[Entry]:
    for number, unit in enumerate(decided.units):
        for append in unit.appends:
            tag = tag_of(append.body)
            try:
                body = encode_body(append.body)
                texts = _texts(append).encode()
            except UnicodeEncodeError as error:
                raise _unstorable(append.stream, tag) from error
            if b"\x00" in texts:
                raise _unstorable(append.stream, tag)
            if len(body) > BODY_BYTES_MAX:
                raise _too_large(append.stream, tag, len(body))
            yield Entry(number, append, tag, body)


def _texts(append: Append) -> str:
    return f"{append.stream}{append.workspace}{append.actor}{append.cause}{append.trace}"


def _unstorable(stream: str, tag: str) -> Malformed:
    """Refuse NUL outside of bodies, which Postgres cannot hold, and halves of surrogate pairs."""
    detail = f"a word of {tag} on {stream!r} is no plain text"
    return Malformed(Rejected(code="event.text", detail=detail))


def _too_large(stream: str, tag: str, size: int) -> Malformed:
    detail = f"{tag} on {stream} takes {size} bytes, more than {BODY_BYTES_MAX}"
    hint = "keep what is large in the store and name it by its hash"
    return Malformed(Rejected(code="event.too_large", detail=detail, hint=hint))


def _refuse_after_close(service: str, entries: list[Entry]) -> None:
    closed: set[str] = set()
    for entry in entries:
        if entry.append.stream in closed:
            raise InvariantBroken(f"{service} says more on {entry.append.stream} after closing it")
        if entry.append.closes:
            closed.add(entry.append.stream)


class Stamp(NamedTuple):
    """What the log adds to an event when it records it."""

    epoch: int
    position: int
    version: int
    event_id: str
    at: dt.datetime


def recorded(decided: Decided, append: Append, stamp: Stamp) -> Recorded:
    """Give an event as the log holds it."""
    return Recorded(
        epoch=stamp.epoch,
        position=stamp.position,
        stream=append.stream,
        version=stamp.version,
        event_id=stamp.event_id,
        at=stamp.at,
        workspace=append.workspace,
        actor=append.actor,
        cause=append.cause,
        service=decided.service,
        read_to=decided.read_to.number,
        decided_at=decided.decided_at,
        rules=decided.rules,
        trace=append.trace,
        body=append.body,
    )
