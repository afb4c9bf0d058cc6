"""How an event travels: what the relay publishes and followers read, as JSON with named fields.

A follower may be of another release than the relay: fields that it does not know are ignored, and
bodies of retired types become live events here, as they do when they are read from the log.
"""

import msgspec

from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.upcasts import decode_body

_Sealed = msgspec.defstruct(
    "_Sealed",
    [
        (field.name, msgspec.Raw if field.name == "body" else field.type)
        for field in msgspec.structs.fields(Recorded)
    ],
)
"""A recorded event whose body is still as it was stored."""


class _Tagged(msgspec.Struct, frozen=True):
    type: str


_encoder = msgspec.json.Encoder()
_whole = msgspec.json.Decoder(Recorded)
_sealed = msgspec.json.Decoder(_Sealed)
_tagged = msgspec.json.Decoder(_Tagged)


def encode(recorded: Recorded) -> bytes:
    """Write an event for the bus."""
    return _encoder.encode(recorded)


def decode(payload: bytes) -> Recorded:
    """Read what :func:`encode` of any release wrote.

    Raises:
        UnknownEvent: the type is of a later release.
        msgspec.DecodeError: the payload is no event.
    """
    try:
        return _whole.decode(payload)
    except msgspec.ValidationError:
        # Not a live type: rare, so the second pass may cost what it costs.
        fields = msgspec.structs.asdict(_sealed.decode(payload))
    body = fields["body"]
    return Recorded(**{**fields, "body": decode_body(_tagged.decode(body).type, bytes(body))})
