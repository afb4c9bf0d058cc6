"""How the command prints: tables, ages, and texts of others without their control characters."""

import datetime as dt
import sys
from collections.abc import Sequence

import msgspec

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def clean(text: object) -> str:
    """Escape whatever could move the cursor, colour the terminal or turn the writing direction."""
    return "".join(one if one.isprintable() else _escaped(one) for one in str(text))


def _escaped(character: str) -> str:
    return _NAMED.get(character) or character.encode("unicode_escape").decode()


def say(text: str) -> None:
    """Tell a person something on standard error."""
    sys.stderr.write(f"{text}\n")


def put(text: str) -> None:
    """Write a line for whoever reads the output."""
    sys.stdout.write(f"{text}\n")


def put_json(value: object) -> None:
    """Write one line of JSON for a program."""
    put(msgspec.json.encode(value).decode())


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """Print rows under headers; the last column may be long and is not cut for programs."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if not cells:
        say(empty)
        return
    if sys.stdout.isatty():
        _rich(headers, cells)
        return
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    for row in [list(headers), *cells]:
        put("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _rich(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for position, header in enumerate(headers):
        # What names a thing is never cut: people copy it. Only the last column gives way.
        widest = max(len(row[position]) for row in cells)
        is_last = position == len(headers) - 1
        least = len(header) if is_last else max(widest, len(header))
        shown.add_column(header, min_width=least, no_wrap=not is_last, overflow="fold")
    for row in cells:
        shown.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    Console(highlight=False).print(shown)


_STYLES = {
    "running": "green",
    "succeeded": "green",
    "ready": "green",
    "failed": "red",
    "rejected": "red",
    "lost": "red",
    "stopped": "yellow",
    "stopping": "yellow",
    "suspect": "yellow",
}


def facts(pairs: Sequence[tuple[str, object]]) -> None:
    """Print names and values, leaving out what is empty."""
    given = [(name, clean(value)) for name, value in pairs if value not in ("", None)]
    width = max(len(name) for name, _ in given)
    for name, value in given:
        put(f"{name.ljust(width)}  {value}")


def age(since: dt.datetime, until: dt.datetime | None = None) -> str:
    """Say how long it is from ``since`` to ``until`` (now, if None) in one or two units."""
    seconds = max(0, int(((until or dt.datetime.now(dt.UTC)) - since).total_seconds()))
    for size, unit, smaller_size, smaller in _UNITS:
        if seconds >= size:
            rest = seconds % size // smaller_size
            return f"{seconds // size}{unit}{f' {rest}{smaller}' if rest else ''}"
    return f"{seconds}s"


_UNITS = ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))


def moment(at: dt.datetime) -> str:
    """Write a time of day in the reader's zone, to milliseconds."""
    return at.astimezone().strftime("%H:%M:%S.%f")[:-3]
