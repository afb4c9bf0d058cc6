"""With what status a process of ours ends, so that whoever supervises it knows what to do.

Only what a person must change ends it for good. An outage never does: who is away may be back, and
so may a password be right that was refused: the server may learn of a new one later than we do, and
one that asks our call-out refuses everybody while that is away.
"""

import sys
from collections.abc import Iterator
from typing import NoReturn

import structlog

from ebbtide.contracts.errors import EbbtideError, Malformed

EXIT_BROKEN, EXIT_AGAIN, EXIT_BAD_SETTINGS = 70, 75, 78
"""As in sysexits.h: a fault of ours, a condition that passes, a configuration that cannot work.
The first two ask to be started again, the last not to be."""

_log = structlog.get_logger()


def end(error: BaseException, for_good: tuple[type[EbbtideError], ...] = ()) -> NoReturn:
    """Say why the process ends, and end it; ``for_good`` are errors that no new start mends."""
    code = exit_code(error, for_good)
    causes = [str(cause) or repr(cause) for cause in _leaves(error)]
    if code == EXIT_BAD_SETTINGS:
        _log.error("process.refused", error="; ".join(causes))
    elif code == EXIT_AGAIN:
        _log.error("process.ends_for_now", error="; ".join(causes))
    else:
        _log.error("process.broken", error=repr(error), exc_info=error)
    sys.exit(code)


def exit_code(error: BaseException, for_good: tuple[type[EbbtideError], ...] = ()) -> int:
    """Give the status for an error or a group of them; what nobody foresaw outweighs the rest."""
    kinds = {_kind(leaf, for_good) for leaf in _leaves(error)}
    return next(code for code in (EXIT_BROKEN, EXIT_BAD_SETTINGS, EXIT_AGAIN) if code in kinds)


def _kind(error: BaseException, for_good: tuple[type[EbbtideError], ...]) -> int:
    if isinstance(error, for_good):
        return EXIT_BAD_SETTINGS
    if isinstance(error, Malformed) and error.rejected.code == "settings":
        return EXIT_BAD_SETTINGS
    if isinstance(error, EbbtideError) and error.retryable:
        return EXIT_AGAIN
    return EXIT_BROKEN


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
