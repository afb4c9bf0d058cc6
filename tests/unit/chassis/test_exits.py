"""Which errors ask for a new start, and which for a person."""

import pytest

from ebbtide.chassis.exits import EXIT_AGAIN, EXIT_BAD_SETTINGS, EXIT_BROKEN, exit_code
from ebbtide.contracts.errors import (
    InvariantBroken,
    Malformed,
    NotFound,
    Rejected,
    StaleEpoch,
    Unavailable,
)

SETTING = Malformed(Rejected(code="settings", field="EBB_CELL", detail="no name"))
BODY = Malformed(Rejected(code="event.too_large", detail="too large"))
AWAY = Unavailable("nobody answers")


@pytest.mark.parametrize("error", [AWAY, StaleEpoch("another history")])
def test_what_passes_by_itself_asks_for_a_new_start(error: Exception) -> None:
    assert exit_code(error) == EXIT_AGAIN


def test_a_wrong_setting_asks_for_none() -> None:
    assert exit_code(SETTING) == EXIT_BAD_SETTINGS


def test_what_the_process_says_that_no_new_start_mends_asks_for_none() -> None:
    assert exit_code(NotFound("too old"), for_good=(NotFound,)) == EXIT_BAD_SETTINGS


@pytest.mark.parametrize("error", [BODY, InvariantBroken("never"), NotFound("it"), ValueError()])
def test_everything_else_is_a_fault_of_ours(error: Exception) -> None:
    assert exit_code(error) == EXIT_BROKEN


def test_a_group_of_outages_is_an_outage() -> None:
    group = ExceptionGroup("parts", [AWAY, ExceptionGroup("more", [AWAY])])
    assert exit_code(group) == EXIT_AGAIN


def test_an_outage_does_not_hide_a_fault() -> None:
    assert exit_code(ExceptionGroup("parts", [AWAY, ValueError()])) == EXIT_BROKEN
