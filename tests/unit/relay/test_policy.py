import pytest

from ebbtide.contracts.envelope import Position, Recorded
from ebbtide.contracts.events import NodeFenced, job_of
from ebbtide.contracts.ids import NodeNumber
from ebbtide.relay.policy import GoOn, MakeAnew, Mark, decide
from ebbtide.testing.builders import recorded
from ebbtide.testing.logbook import say


def row(position: int, epoch: int = 1, event_id: str = "a") -> Recorded:
    return recorded(say("job-j", text="j"), position, epoch=epoch, event_id=event_id)


def mark(sequence: int, epoch: int = 1, event_id: str = "a") -> Mark:
    return Mark(sequence=sequence, epoch=epoch, event_id=event_id)


def test_an_equal_message_is_gone_on_from() -> None:
    assert decide(mark(5), row(5), Position(1, 9)) == GoOn(after=5)


def test_an_equal_message_of_an_older_epoch_is_gone_on_from() -> None:
    assert decide(mark(5, epoch=1), row(5, epoch=1), Position(3, 9)) == GoOn(after=5)


def test_a_lost_stream_is_made_anew_without_a_new_epoch() -> None:
    assert decide(None, None, Position(4, 9)) == MakeAnew(above_epoch=0)


@pytest.mark.parametrize("found", [None, row(5, epoch=2, event_id="b"), row(5)])
def test_a_message_that_the_log_does_not_hold_raises_the_epoch_above_its_own(
    found: Recorded | None,
) -> None:
    assert decide(mark(5, epoch=2), found, Position(2, 9)) == MakeAnew(above_epoch=2)


def test_a_message_of_a_later_epoch_than_the_log_raises_the_epoch_above_its_own() -> None:
    assert decide(mark(5, epoch=7), None, Position(2, 3)) == MakeAnew(above_epoch=7)


def test_the_epoch_is_not_raised_again_when_it_stands_above_already() -> None:
    assert decide(mark(5, epoch=1), None, Position(2, 3)) == MakeAnew(above_epoch=0)


def test_a_foreign_message_needs_no_new_epoch() -> None:
    foreign = mark(5, epoch=0, event_id="")
    assert decide(foreign, row(5), Position(1, 9)) == MakeAnew(above_epoch=0)


def test_an_event_of_a_job_names_it() -> None:
    assert job_of(row(1).body) == "j"


def test_an_event_of_no_job_names_none() -> None:
    fenced = NodeFenced(node=NodeNumber(1), why="a person says so")
    assert job_of(fenced) is None
