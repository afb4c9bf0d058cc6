"""``ebb logs``: the bytes that a worker wrote, as it wrote them."""

import sys
import time
from collections.abc import Iterator

import click

from ebbtide.cli import exits
from ebbtide.cli.printing import say
from ebbtide.cli.run import SETTINGS, misused, run
from ebbtide.client import Client, LogPiece
from ebbtide.contracts.errors import NotFound
from ebbtide.contracts.http import FINAL_PHASES
from ebbtide.contracts.ids import JobId
from ebbtide.contracts.job_spec import workers_of

FOLLOWED_MAX = 64
"""Workers followed at once; each costs a request per round."""
ROUND_S = 0.5


@click.command("logs", context_settings=SETTINGS)
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--worker", default="0", show_default=True, help="Its rank, or `all`.")
@click.option("--attempt", type=click.IntRange(0), default=0, help="Which one; 0 is the newest.")
def command(job: str, follow: bool, worker: str, attempt: int) -> int:
    """Print a worker's log; with `all`, each line begins with whose it is."""
    with Client.from_environment() as client:
        if worker == "all":
            return _all(client, JobId(job), attempt, follow=follow)
        if not worker.isdecimal():
            raise misused("--worker", f"{worker!r} is no rank", "write a number from 0, or all")
        seen = 0
        for piece in client.logs(job, worker=int(worker), attempt=attempt, follow=follow):
            if seen and piece.attempt != seen:
                say(f"-- attempt {piece.attempt} --")
            seen = piece.attempt
            _write(piece.data)
            _missing(piece)
    return exits.OK


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _missing(piece: LogPiece) -> None:
    if piece.missing:
        say(f"-- {piece.missing} more bytes of worker {piece.worker} are not to be had --")


class Lines:
    """Gives whole lines of several workers, each begun with whose it is."""

    def __init__(self, name: str) -> None:
        self._prefix = f"[{name}] ".encode()
        self._rest = b""

    def take(self, data: bytes) -> bytes:
        """Take bytes; give the lines that are whole by now."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        return b"".join(self._prefix + line + b"\n" for line in whole)

    def end(self) -> bytes:
        """Give what was left without an end of line."""
        rest, self._rest = self._rest, b""
        return self._prefix + rest + b"\n" if rest else b""


def _all(client: Client, job: JobId, attempt: int, *, follow: bool) -> int:
    workers = workers_of(client.get(job).spec)
    if follow and len(workers) > FOLLOWED_MAX:
        detail = f"{len(workers)} workers cannot be followed at once, only {FOLLOWED_MAX}"
        raise misused("--worker", detail, "follow one of them, or leave -f out")
    for number, (role, index) in enumerate(workers if not follow else ()):
        lines = Lines(f"{role}-{index}")
        for piece in client.logs(job, worker=number, attempt=attempt):
            _write(lines.take(piece.data))
            _missing(piece)
        _write(lines.end())
    if follow:
        for data in _together(client, job, attempt, [f"{role}-{index}" for role, index in workers]):
            _write(data)
    return exits.OK


def _together(client: Client, job: JobId, attempt: int, names: list[str]) -> Iterator[bytes]:
    """Follow several workers in turn, attempt by attempt, until the job has ended."""
    newest = attempt or max(client.get(job).attempt, 1)
    while True:
        yield from _attempt(client, job, newest, names)
        if attempt:
            return
        detail = client.wait(job, timeout_s=0)
        while detail.attempt <= newest and detail.phase not in FINAL_PHASES:
            detail = client.wait(job, timeout_s=ROUND_S)
        if detail.attempt <= newest:
            return
        newest += 1
        say(f"-- attempt {newest} --")


def _attempt(client: Client, job: JobId, attempt: int, names: list[str]) -> Iterator[bytes]:
    lines = {number: Lines(name) for number, name in enumerate(names)}
    offsets = dict.fromkeys(lines, 0)
    while offsets:
        quiet = True
        for number in list(offsets):
            try:
                piece, _, ended = client.log_piece(
                    job, worker=number, attempt=attempt, offset=offsets[number]
                )
            except NotFound:
                return  # the job ended without this attempt
            if piece.data:
                quiet = False
                offsets[number] = piece.offset + len(piece.data)
                yield lines[number].take(piece.data)
            elif ended:
                del offsets[number]
                yield lines[number].end()
        if quiet and offsets:
            time.sleep(ROUND_S)


def main(argv: list[str]) -> int:
    """Run the verb."""
    return run(command, argv)
