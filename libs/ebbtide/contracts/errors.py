"""The two kinds of no.

A *no* of the domain is a value: :class:`Rejected`, with a stable code that people may program
against. An exception is for the world: something is gone, late, malformed or in conflict.
"""

import msgspec


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal: a stable ``code``, what was wrong in ``detail``, what to do in ``hint``."""

    code: str
    detail: str
    hint: str = ""
    field: str = ""


class EbbtideError(Exception):
    """Base of what may go wrong outside the domain.

    ``code`` is stable, ``retryable`` guides shells.
    """

    code = "error"
    retryable = False


class Conflict(EbbtideError):
    """Somebody else moved what this was based on; read to the head and decide again."""

    code = "conflict"
    retryable = True


class StaleEpoch(Conflict):
    """The log has a newer history than the one this was decided on; refold."""

    code = "conflict.epoch"


class Unavailable(EbbtideError):
    """A server or service does not answer; try again later."""

    code = "unavailable"
    retryable = True


class NotFound(EbbtideError):
    """The thing does not exist, or not for you."""

    code = "not_found"


class Malformed(EbbtideError):
    """What arrived does not have the shape it must have; carries the refusal to show."""

    code = "malformed"

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(
            f"{rejected.field}: {rejected.detail}" if rejected.field else rejected.detail
        )
        self.rejected = rejected


class InvariantBroken(EbbtideError):
    """The program contradicts itself: stop the cycle, drop the picture, refold."""

    code = "invariant"
