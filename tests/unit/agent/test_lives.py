"""Records of workers: what was written is what is read, whoever wrote which half."""

from pathlib import Path

import pytest

from ebbtide.agent.lives import GROW_BY, Lives
from ebbtide.agent.model import Life, Note, WorkerKey, parse_key, parse_life
from ebbtide.agent.sitter import HALF_BYTES
from ebbtide.contracts.errors import InvariantBroken
from ebbtide.contracts.outcomes import EndCause

KEY = WorkerKey("job_main_01J00000000000000000000001", 1, 2, 3, 4)
NOTE = Note(stop=True, port=20001)


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    return Lives(tmp_path / "lives")


def read(agents: bytes, sitters: bytes = b"") -> Life:
    life = parse_life(3, agents.ljust(HALF_BYTES, b"\0"), sitters.ljust(HALF_BYTES, b"\0"))
    assert life is not None
    return life


PLANNED = b'P job.1.2.3.4 {"stop":true,"port":9}\n'


def test_a_key_is_read_as_it_was_written() -> None:
    assert parse_key(str(KEY)) == KEY


def test_a_free_record_is_nobody() -> None:
    assert parse_life(0, bytes(HALF_BYTES), bytes(HALF_BYTES)) is None


def test_a_planned_worker_has_no_sitter_yet(lives: Lives) -> None:
    slot = lives.take()
    lives.plan(KEY, NOTE, slot)
    life = lives.read(slot)
    assert life is not None
    assert (life.key, life.note, life.sitter, life.end) == (KEY, NOTE, 0, None)


def test_what_a_sitter_writes_is_read_with_what_the_agent_wrote() -> None:
    life = read(PLANNED + b"O 5\n", b"S 77 2\nR 88 99\nE exited 256 100 12 3 \n")
    assert (life.slot, life.ordered, life.sitter, life.pid, life.started_ns) == (
        3,
        True,
        77,
        88,
        99,
    )
    assert life.end is not None
    assert (life.end.cause, life.end.status, life.end.at_ns) == (EndCause.EXITED, 256, 100)
    assert (life.end.log_bytes, life.end.kills) == (12, 3)


def test_a_failed_start_says_why_and_has_no_status() -> None:
    life = read(PLANNED, b"S 7 2\nE start_failed -1 5 0 0 No such file: x\n")
    assert life.end is not None
    assert (life.end.cause, life.end.status, life.end.detail) == (
        EndCause.START_FAILED,
        None,
        "No such file: x",
    )


def test_a_buried_worker_has_ended_after_a_restart_too(lives: Lives, tmp_path: Path) -> None:
    slot = lives.take()
    lives.plan(KEY, NOTE, slot)
    assert lives.bury(slot, EndCause.NOT_STARTED, 5, "ended\nfirst")
    lives.close()
    found = Lives(tmp_path / "lives").found()
    assert [life.end and (life.end.cause, life.end.detail) for life in found] == [
        (EndCause.NOT_STARTED, "ended first")
    ]


def test_an_order_is_noted_once(lives: Lives, tmp_path: Path) -> None:
    slot = lives.take()
    lives.plan(KEY, NOTE, slot)
    lives.note_order(slot, 5)
    lives.note_order(slot, 6)
    assert (tmp_path / "lives").read_bytes().count(b"\nO ") == 1


def test_a_freed_slot_is_used_again_and_forgotten_after_a_restart(
    lives: Lives, tmp_path: Path
) -> None:
    slot = lives.take()
    lives.plan(KEY, NOTE, slot)
    lives.free(slot)
    assert lives.take() == slot
    lives.close()
    assert Lives(tmp_path / "lives").found() == []


def test_slots_do_not_run_out_at_once(lives: Lives) -> None:
    assert sorted(lives.take() for _ in range(GROW_BY + 1)) == list(range(GROW_BY + 1))


def test_slots_in_use_are_not_given_after_a_restart(lives: Lives, tmp_path: Path) -> None:
    slot = lives.take()
    lives.plan(KEY, NOTE, slot)
    lives.close()
    again = Lives(tmp_path / "lives")
    assert slot not in [again.take() for _ in range(GROW_BY - 1)]


def test_a_name_that_does_not_fit_is_refused_and_not_cut(lives: Lives) -> None:
    with pytest.raises(InvariantBroken, match="does not fit"):
        lives.plan(WorkerKey("j" * 400, 1, 1, 1, 1), NOTE, lives.take())
