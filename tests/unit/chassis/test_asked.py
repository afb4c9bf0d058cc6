"""Open questions are kept while somebody waits for them, and no longer."""

from ebbtide.chassis.asked import ASKED_S, WAITING_MAX, Asked
from ebbtide.testing.builders import VirtualClock


def test_a_question_is_open_until_it_is_answered() -> None:
    asked: Asked[int] = Asked(VirtualClock())
    asked.take("a", 1)
    asked.take("b", 2)
    asked.answered("a")
    assert asked.open() == [("b", 2)]


def test_a_question_to_which_nobody_wants_an_answer_is_not_kept() -> None:
    asked: Asked[int] = Asked(VirtualClock())
    asked.take("", 1)
    assert asked.open() == []


def test_questions_asked_long_ago_make_room_for_those_that_are_waited_for() -> None:
    clock = VirtualClock()
    asked: Asked[int] = Asked(clock)
    for number in range(WAITING_MAX + 1):
        asked.take(f"old-{number}", number)
    assert len(asked.open()) == WAITING_MAX
    clock.advance(ASKED_S + 1)
    asked.take("new", 7)
    assert asked.open() == [("new", 7)]
