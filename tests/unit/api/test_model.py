"""The api's fold: given what was said, the job is seen like this."""

from collections.abc import Sequence

import msgspec
import pytest

from ebbtide.api.model import Alive, Picture, Row
from ebbtide.api.render import FOR_ADMISSION, FOR_ITS_TURN, NO_NODES, NOT_READY, job_view, why
from ebbtide.contracts.envelope import Append
from ebbtide.contracts.events import (
    AttemptEnded,
    AttemptStopRequested,
    FirstFailure,
    JobRestarting,
    JobStopRequested,
)
from ebbtide.contracts.ids import JobId, TokenId
from ebbtide.contracts.outcomes import EndCause, KeepAll, Outcome
from ebbtide.testing import said
from ebbtide.testing.builders import START, TEAM, job_name, recorded

JOB = job_name(1)


def _told(*appends: Append) -> tuple[Picture, dict[JobId, Row]]:
    """Fold what was said; give the picture and the last row of every job."""
    picture = Picture()
    rows: dict[JobId, Row] = {}
    for position, append in enumerate(appends, start=1):
        changed = picture.apply(recorded(append, position, actor="token:a"))
        if isinstance(changed, Alive):
            rows[changed.row.id] = changed.row
    return picture, rows


def _row(*appends: Append) -> Row:
    return _told(*appends)[1][JOB]


PLACED = (said.joined(), said.submitted(JOB), said.queued(JOB), said.held(JOB), said.placed(JOB, 2))
RUNNING = (*PLACED, said.running(JOB, 3))


@pytest.mark.parametrize(
    ("appends", "phase"),
    [
        ((said.submitted(JOB),), "submitted"),
        ((said.submitted(JOB), said.queued(JOB)), "queued"),
        ((said.submitted(JOB), said.rejected(JOB)), "rejected"),
        (PLACED, "placed"),
        (RUNNING, "running"),
        ((*RUNNING, said.ended(JOB, 4)), "running"),
        ((*RUNNING, said.ended(JOB, 4), said.restarting(JOB, 5)), "restarting"),
        ((*RUNNING, said.succeeded(JOB, 4)), "succeeded"),
        ((*RUNNING, said.failed(JOB, 4)), "failed"),
        ((*RUNNING, said.stopped(JOB, 4)), "stopped"),
    ],
)
def test_each_step_has_its_phase(appends: Sequence[Append], phase: str) -> None:
    assert _row(*appends).phase == phase


def test_a_job_that_is_asked_to_stop_is_stopping_whatever_else_happens() -> None:
    asked = said.lifecycle(JOB, JobStopRequested(job=JOB, reason="enough"), 2)
    row = _row(said.joined(), said.submitted(JOB), said.queued(JOB), asked, said.running(JOB, 3))
    assert (row.phase, row.why) == ("stopping", "enough")


def test_a_placed_job_shows_its_nodes_by_name_once_each() -> None:
    row = _row(said.joined(), said.submitted(JOB), said.held(JOB, workers=3), said.placed(JOB))
    assert row.names == ("n1",)
    assert row.places == (said.NODE,) * 3


def test_the_first_start_stays_the_start_over_restarts() -> None:
    again = (said.restarting(JOB, 4), said.held(JOB, 2), said.placed(JOB, 5, 2))
    row = _row(*RUNNING, *again, said.running(JOB, 6, 2))
    assert (row.attempt, row.restarts, row.started_at) == (2, 1, START)


def test_a_restart_in_place_is_the_next_attempt_at_once() -> None:
    body = JobRestarting(job=JOB, attempt=2, keep=KeepAll(), counted=False, why="lost")
    row = _row(*RUNNING, said.ended(JOB, 4), said.lifecycle(JOB, body, 5))
    assert (row.attempt, row.restarts, row.names, row.why) == (2, 0, ("n1",), "lost")


def test_a_restart_elsewhere_still_shows_the_last_attempt_until_it_is_placed() -> None:
    row = _row(*RUNNING, said.ended(JOB, 4), said.restarting(JOB, 5), said.released(JOB))
    assert (row.attempt, row.names, row.held) == (1, (), ())


def test_why_names_the_worker_that_was_first() -> None:
    first = FirstFailure(worker=1, node="n1", cause=EndCause.OOM, status=9, detail="2 GiB")
    body = AttemptEnded(job=JOB, attempt=1, outcome=Outcome.FAILED, first=first)
    row = _row(*RUNNING, said.lifecycle(JOB, body, 4))
    assert row.why == "worker 1 on n1 was killed: out of memory (2 GiB)"


def test_why_says_that_an_attempt_is_being_ended() -> None:
    body = AttemptStopRequested(job=JOB, attempt=1, reason="worker_failed", worker=2)
    assert _row(*RUNNING, said.lifecycle(JOB, body, 4)).why == "worker failed (worker 2)"


def test_the_newest_checkpoint_is_the_highest_step() -> None:
    assert _row(*RUNNING, said.saved(JOB, 20), said.saved(JOB, 10)).newest_step == 20


def test_nothing_changes_a_job_that_has_ended() -> None:
    ended = _row(*RUNNING, said.failed(JOB, 4))
    later = _row(*RUNNING, said.failed(JOB, 4), said.saved(JOB, 5), said.running(JOB, 5))
    assert later == ended


def test_a_job_is_let_go_once_it_has_ended_and_holds_nothing() -> None:
    picture, _ = _told(*RUNNING, said.succeeded(JOB, 4))
    assert JOB in picture.jobs
    picture, rows = _told(*RUNNING, said.succeeded(JOB, 4), said.released(JOB))
    assert JOB not in picture.jobs
    assert rows[JOB].story == (4, 8)


def test_what_is_held_is_not_free_and_comes_back() -> None:
    picture, _ = _told(*RUNNING)
    assert picture.free(picture.nodes[said.NODE]) == {"cpu": 3000, "memory": 15360}
    picture, _ = _told(*RUNNING, said.released(JOB))
    assert picture.free(picture.nodes[said.NODE]) == {"cpu": 4000, "memory": 16384}
    assert picture.used == {}


def test_counts_follow_jobs_from_phase_to_phase_and_keep_ended_ones() -> None:
    other = job_name(2)
    picture, _ = _told(*RUNNING, said.submitted(other), said.failed(JOB, 4), said.released(JOB))
    assert picture.counts == {TEAM: {"failed": 1, "submitted": 1}}


def test_a_revoked_token_is_kept_as_revoked() -> None:
    from ebbtide.contracts.events import TokenCreated, TokenRevoked

    name = TokenId("t")
    made = TokenCreated(token=name, kind="member", subject="team", secret_sha256="x")
    picture, _ = _told(
        Append(stream="token-t", body=made, expected=0),
        Append(stream="token-t", body=TokenRevoked(token=name), expected=1),
    )
    assert picture.tokens[name].revoked_at == START


def test_a_row_survives_being_written_and_read() -> None:
    row = _row(*RUNNING)
    assert msgspec.json.decode(msgspec.json.encode(row), type=Row) == row


@pytest.mark.parametrize(
    ("appends", "told"),
    [
        ((said.submitted(JOB),), FOR_ADMISSION),
        ((said.submitted(JOB), said.queued(JOB)), NO_NODES),
        ((said.joined(), said.submitted(JOB), said.queued(JOB)), FOR_ITS_TURN),
        ((said.joined(), said.lost(), said.submitted(JOB), said.queued(JOB)), NOT_READY),
        (RUNNING, ""),
        ((said.submitted(JOB), said.rejected(JOB)), "too much; ask for less"),
    ],
)
def test_a_waiting_job_says_what_it_waits_for(appends: Sequence[Append], told: str) -> None:
    picture, rows = _told(*appends)
    assert why(rows[JOB], picture) == told


def test_a_restart_that_waits_says_both_why_and_for_what() -> None:
    body = JobRestarting(job=JOB, attempt=2, keep=KeepAll(), counted=True, why="node lost")
    told = (*RUNNING, said.ended(JOB, 4), said.released(JOB), said.lifecycle(JOB, body, 5))
    picture, rows = _told(*told)
    assert why(rows[JOB], picture) == f"node lost; {FOR_ITS_TURN}"


def test_what_people_see_is_the_row_by_name() -> None:
    picture, rows = _told(*RUNNING)
    view = job_view(rows[JOB], picture)
    assert (view.id, view.phase, view.nodes, view.charge) == (JOB, "running", ("n1",), "in_quota")
