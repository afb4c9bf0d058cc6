"""Open questions are kept while somebody waits for them, and no longer."""

import pytest

from ebbtide.chassis.asked import ASKED_S, WAITING_MAX, Asked, is_agents_own
from ebbtide.chassis.bus import Message
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


@pytest.mark.parametrize(
    "reply",
    [
        "$KV.desired_main.n2",
        "$JS.API.STREAM.PURGE.EVT_main",
        "agents.main.tell",
        "_INBOX.main.n2.x",
        "_INBOX.main.n11.x",
        "_INBOX.main.n1",
    ],
)
def test_an_agent_that_wants_an_answer_sent_elsewhere_is_not_heard(reply: str) -> None:
    assert not is_agents_own("main", Message("agent.main.n1.report", b"", reply))


def test_what_the_server_was_made_to_say_on_an_agents_subject_is_not_its_word() -> None:
    headers = {"Nats-Stream": "KV_lease_main"}
    assert not is_agents_own("main", Message("agent.main.n1.report", b"", "", headers))


@pytest.mark.parametrize("reply", ["", "_INBOX.main.n1.x.y"])
def test_an_agent_that_wants_its_answer_itself_is_heard(reply: str) -> None:
    assert is_agents_own("main", Message("agent.main.n1.report", b"", reply))
