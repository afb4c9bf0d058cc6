"""What an agent knows of a worker, and how its record tells it. Pure.

The lines of a record are told in ``sitter.py``.
"""

import msgspec

from ebbtide.contracts.outcomes import EndCause


class WorkerKey(msgspec.Struct, frozen=True, order=True):
    """Who a worker is, everywhere and for good: its job's attempt and round, and its rank."""

    job: str
    epoch: int
    attempt: int
    round: int
    worker: int

    def __str__(self) -> str:
        return f"{self.job}.{self.epoch}.{self.attempt}.{self.round}.{self.worker}"

    @property
    def fence(self) -> tuple[int, int, int]:
        """What a later life of the same job has more of."""
        return (self.epoch, self.attempt, self.round)


def parse_key(text: str) -> WorkerKey:
    """Read what ``str(key)`` wrote."""
    job, *numbers = text.rsplit(".", 4)
    epoch, attempt, round_, worker = map(int, numbers)
    return WorkerKey(job, epoch, attempt, round_, worker)


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the agent must know of a worker after its own restart.

    ``stop``: it ends with the lease. ``port`` is held for its rendezvous.
    """

    stop: bool = False
    port: int = 0


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The end as it stands in a record; ``kills`` is how often the kernel killed for memory."""

    cause: EndCause
    status: int | None
    at_ns: int
    log_bytes: int = 0
    kills: int = 0
    detail: str = ""


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One record: a worker was planned, perhaps taken charge of, started and ended.

    ``group`` is the number of its sitter's cgroup, -1 for none.
    """

    slot: int
    key: WorkerKey
    note: Note
    ordered: bool = False
    sitter: int = 0
    group: int = -1
    pid: int = 0
    started_ns: int = 0
    end: Ending | None = None


def parse_life(slot: int, agents: bytes, sitters: bytes) -> Life | None:
    """Read both halves of a record; None if the slot is free."""
    lines = [line for half in (agents, sitters) for line in half.partition(b"\0")[0].split(b"\n")]
    if not lines[0].startswith(b"P "):
        return None
    _, key, note = lines[0].split(b" ", 2)
    life = Life(slot=slot, key=parse_key(key.decode()), note=msgspec.json.decode(note, type=Note))
    for line in lines[1:]:
        life = _with(life, line)
    return life


def _with(life: Life, line: bytes) -> Life:
    words = line.decode(errors="replace").split(" ")
    match words[0]:
        case "O":
            return msgspec.structs.replace(life, ordered=True)
        case "S":
            return msgspec.structs.replace(life, sitter=int(words[1]), group=int(words[2]))
        case "R":
            return msgspec.structs.replace(life, pid=int(words[1]), started_ns=int(words[2]))
        case "T" | "E":
            return msgspec.structs.replace(life, end=parse_end(words))
        case _:
            return life


def parse_end(words: list[str]) -> Ending:
    """Read the words of an ``E`` or ``T`` line."""
    cause = EndCause(words[1])
    if words[0] == "T":
        return Ending(cause=cause, status=None, at_ns=int(words[2]), detail=" ".join(words[3:]))
    status = int(words[2])
    return Ending(
        cause=cause,
        status=status if status >= 0 else None,
        at_ns=int(words[3]),
        log_bytes=int(words[4]),
        kills=int(words[5]),
        detail=" ".join(words[6:]),
    )
