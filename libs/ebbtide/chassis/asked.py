"""Requests whose answer has to wait for the log: bounded in number and in age.

Whoever asked and got no answer asks again, so forgetting costs time and nothing else. Without the
age, questions asked while the log was away would stand in the way of those that are still open.
"""

from typing import Generic, TypeVar

import msgspec
import structlog

from ebbtide.chassis.bus import Message
from ebbtide.chassis.clock import Clock
from ebbtide.contracts import subjects

WAITING_MAX = 10_000
"""Requests that may wait for an answer; more are dropped, and whoever sent them asks again."""
ASKED_S = 10.0
"""Agents wait 5 s for an answer."""

T = TypeVar("T")
_log = structlog.get_logger()


def is_agents_own(cell: str, message: Message) -> bool:
    """Say whether the agent that a subject names said this itself, and wants any answer itself.

    The server checks who speaks on a subject, but not to which address an answer shall go. A
    service may speak everywhere, so an answer to an address of somebody's choosing would write
    there by its hand; and an agent can have the server itself answer on another's subject, with a
    value out of a stream.
    """
    own = f"{subjects.inbox(cell, subjects.node_of(message.subject))}."
    answers_home = not message.reply or message.reply.startswith(own)
    return answers_home and subjects.HEADER_STREAM not in message.headers


def agents_word(cell: str, message: Message, kind: type[T]) -> T | None:
    """Read what an agent says; nothing where it is not its own word, or cannot be read."""
    if not is_agents_own(cell, message):
        _log.warning("agent.not_its_own_word", subject=message.subject, reply=message.reply)
        return None
    try:
        return msgspec.json.decode(message.data, type=kind)
    except msgspec.MsgspecError as error:
        _log.warning("agent.malformed", subject=message.subject, error=str(error))
        return None


class Asked(Generic[T]):
    """Open questions by the subject of their reply, oldest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[str, tuple[T, float]] = {}

    def take(self, reply: str, question: T) -> None:
        """Keep a question, if anybody waits for its answer and there is room."""
        self._forget_old()
        if reply and len(self._open) < WAITING_MAX:
            self._open[reply] = (question, self._clock.monotonic_s())

    def open(self) -> list[tuple[str, T]]:
        """Give reply and question of all that are still waited for."""
        self._forget_old()
        return [(reply, question) for reply, (question, _) in self._open.items()]

    def answered(self, reply: str) -> None:
        """Forget a question that has its answer; it may have grown old meanwhile."""
        self._open.pop(reply, None)

    def _forget_old(self) -> None:
        oldest_s = self._clock.monotonic_s() - ASKED_S
        while self._open:
            reply, (_, asked_s) = next(iter(self._open.items()))
            if asked_s >= oldest_s:
                return
            del self._open[reply]
