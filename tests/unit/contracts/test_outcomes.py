"""Ends in words."""

import pytest

from ebbtide.contracts.outcomes import EndCause, how_ended


@pytest.mark.parametrize(
    ("cause", "status", "told"),
    [
        (EndCause.EXITED, 0, "exited with code 0"),
        (EndCause.EXITED, 3 << 8, "exited with code 3"),
        (EndCause.SIGNALLED, 15, "was killed by SIGTERM"),
        (EndCause.SIGNALLED, 9 | 0x80, "was killed by SIGKILL"),
        (EndCause.SIGNALLED, 126, "was killed by signal 126"),
        (EndCause.OOM, 9, "was killed: out of memory"),
        (EndCause.LOST, None, "was lost"),
        (EndCause.NOT_STARTED, None, "never started"),
        (EndCause.START_FAILED, None, "could not be started"),
        (EndCause.LEASE, 9, "was ended: its node's lease ran out"),
        (EndCause.EXITED, None, "ended"),
    ],
)
def test_every_end_has_its_words(cause: EndCause, status: int | None, told: str) -> None:
    assert how_ended(cause, status, "") == told


def test_what_is_known_beyond_the_cause_is_told_with_it() -> None:
    lost = how_ended(EndCause.LOST, None, "its node was called lost")
    assert lost == "was lost (its node was called lost)"
