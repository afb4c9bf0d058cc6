"""How a stored body becomes a live event: retired shapes pass through pure functions, old to new.

A retired struct moves to ``contracts/retired/`` unchanged and gets one line in :data:`UPCASTS`;
domain code sees live types only. The golden files under ``tests/contracts/golden`` hold one stored
example of every tag that was ever released, and must decode for ever.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from ebbtide.contracts.errors import EbbtideError
from ebbtide.contracts.events import EVENT_TYPES, Event

CONTRACT_LEVEL = 1
"""A log of a higher level says things that this release cannot read."""

UPCASTS: dict[str, tuple[type[msgspec.Struct], Callable[[Any], Event]]] = {}
"""Retired tag to its struct and the function that makes a live event of it."""

_live: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_encoder = msgspec.json.Encoder()


class UnknownEvent(EbbtideError):
    """The log holds an event that this release does not know; upgrade, nothing was skipped."""

    code = "event.unknown"


def encode_body(event: Event) -> bytes:
    """Write an event as JSON with its tag in the field ``type``."""
    return _encoder.encode(event)


def decode_body(tag: str, body: bytes | str) -> Event:
    """Read a stored event of any tag that was ever released.

    Raises:
        UnknownEvent: the tag is of a later release.
    """
    if tag in EVENT_TYPES:
        return _live.decode(body)
    if tag in UPCASTS:
        retired, upcast = UPCASTS[tag]
        return upcast(msgspec.json.decode(body, type=retired))
    raise UnknownEvent(
        f"event type {tag!r} is not known to this release (contract level {CONTRACT_LEVEL})"
    )
