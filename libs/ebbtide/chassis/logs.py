"""The platform's own log lines: one JSON object per line on standard error, encoded by msgspec."""

import contextlib
import io
import logging
import os
import sys
from typing import Any, BinaryIO, cast

import msgspec
import structlog

_encode = msgspec.json.Encoder(enc_hook=str).encode


def _render(
    _logger: Any, _method: str, event: structlog.types.EventDict
) -> bytes:  # structlog's type
    return _encode(event)


class _Lines(io.RawIOBase):
    """Standard error, unbuffered. On a full disk a line is lost; the process must not be."""

    def write(self, line: Any) -> int:  # whatever holds bytes, as the base has it
        """Write a line, if that can be."""
        with contextlib.suppress(OSError):
            os.write(sys.stderr.fileno(), line)
        return len(line)


def set_up(process: str, level: int = logging.INFO) -> None:
    """Configure structlog for this process; ``process`` names it in every line."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.BytesLoggerFactory(cast("BinaryIO", _Lines())),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)
