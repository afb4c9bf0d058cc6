"""``ebb token``: credentials."""

from typing import get_args

import click
import msgspec

from ebbtide.cli.printing import age, put, put_json, say, table
from ebbtide.cli.run import SETTINGS, json_option, run
from ebbtide.client import Client
from ebbtide.contracts.http import CreateToken

KINDS: tuple[str, ...] = get_args(CreateToken.__annotations__["kind"])
HEADERS = ("TOKEN", "KIND", "SUBJECT", "AGE", "STATE")


@click.group("token", context_settings=SETTINGS)
def command() -> None:
    """Make, list and revoke credentials (admins only)."""


@command.command("create")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("subject", default="")
@json_option
def create(kind: str, subject: str, as_json: bool) -> None:
    """Make a credential and print it, once.

    SUBJECT is the workspace of a member or viewer, the node of an agent, the job of a job; an
    admin has none.
    """
    wanted = msgspec.convert({"kind": kind, "subject": subject}, CreateToken)
    with Client.from_environment() as client:
        token = client.create_token(wanted)
    if as_json:
        put_json(token)
        return
    put(token.secret)
    say("this is shown once; keep it, and hand it over as EBB_TOKEN")


@command.command("ls")
@json_option
def list_tokens(as_json: bool) -> None:
    """List credentials, without their secrets."""
    with Client.from_environment() as client:
        tokens = client.tokens()
    if as_json:
        put_json(tokens)
        return
    rows = [
        (
            token.id,
            token.kind,
            token.subject or "-",
            age(token.created_at),
            "revoked" if token.revoked_at else "valid",
        )
        for token in tokens
    ]
    table(HEADERS, rows, "no tokens")


@command.command("revoke")
@click.argument("token")
@json_option
def revoke(token: str, as_json: bool) -> None:
    """Let a credential open nothing any more. TOKEN is its id, as `ebb token ls` shows it."""
    with Client.from_environment() as client:
        revoked = client.revoke_token(token)
    if as_json:
        put_json(revoked)
    else:
        say(f"{revoked.id} opens nothing any more")


def main(argv: list[str]) -> int:
    """Run the verb."""
    return run(command, argv)
