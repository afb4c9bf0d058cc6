"""Runs a verb's command and turns what goes wrong into one line and an exit code."""

import sys
from collections.abc import Callable

import click

from ebbtide.cli import exits
from ebbtide.cli.printing import clean
from ebbtide.client import Refused
from ebbtide.contracts.errors import EbbtideError, Malformed, NotFound, Rejected
from ebbtide.contracts.http import Problem

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def run(command: click.Command, argv: list[str], rest: tuple[str, ...] = ()) -> int:
    """Run ``command``; a callback gives its exit code, or None for 0. ``rest`` follows a ``--``."""
    name = f"ebb {command.name}"
    try:
        # Not command.main(): that has its own idea of interrupts and of readers that leave early.
        with command.make_context(name, list(argv), obj=rest) as context:
            code = command.invoke(context)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(f"{error.format_message()}\n")
        return exits.USAGE
    except click.exceptions.Abort:
        # Interrupted, or nobody there to answer, while something was asked.
        sys.stderr.write(f"{name}: nothing was changed\n")
        return exits.INTERRUPTED
    except click.ClickException as error:
        what = clean(error.format_message()).rstrip(".")
        sys.stderr.write(f"{name}: {what}; see `{name} --help`\n")
        return exits.USAGE
    except EbbtideError as error:
        sys.stderr.write(f"{name}: {explain(error)}\n")
        return code_of(error)
    return int(code or 0)


def explain(error: EbbtideError) -> str:
    """Say in one line what happened, to which thing, and what to do next."""
    match error:
        case Malformed(rejected=rejected):
            return sentence(rejected)
        case Refused(problem=problem):
            return sentence(problem)
        case _:
            return clean(error)


def sentence(rejected: Rejected | Problem) -> str:
    """Write a refusal as ``field: what; hint``."""
    field = f"{rejected.field}: " if rejected.field else ""
    hint = f"; {rejected.hint}" if rejected.hint else ""
    return clean(f"{field}{rejected.detail}{hint}")


def misused(field: str, detail: str, hint: str = "") -> Malformed:
    """Make the error of a command line that asks for what cannot be."""
    return Malformed(Rejected(code="usage", field=field, detail=detail, hint=hint))


def code_of(error: EbbtideError) -> int:
    """Give the exit code of what went wrong."""
    match error:
        case Malformed():
            return exits.USAGE
        case NotFound():
            return exits.NOT_FOUND
        case Refused(problem=problem):
            return _STATUS.get(problem.status, exits.REFUSED)
        case _:
            return exits.UNAVAILABLE


_STATUS = {
    400: exits.USAGE,
    404: exits.NOT_FOUND,
    413: exits.USAGE,
    422: exits.USAGE,
    500: exits.UNAVAILABLE,
    502: exits.UNAVAILABLE,
    503: exits.UNAVAILABLE,
    504: exits.UNAVAILABLE,
}

json_option: Callable[[Callable[..., int | None]], Callable[..., int | None]] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs."
)
