"""What the door says to the log."""

from ebbtide.api import policy
from ebbtide.api.tokens import mint
from ebbtide.contracts.envelope import Append, Recorded
from ebbtide.contracts.events import JobStopRequested, JobSubmitted
from ebbtide.contracts.ids import TokenId, Workspace
from ebbtide.testing import said
from ebbtide.testing.builders import TEAM, job_name, recorded, spec

JOB = job_name(1)


def _story(*appends: Append) -> list[Recorded]:
    return [
        recorded(append, 10 * number, version=number, trace="t" if number == 1 else "")
        for number, append in enumerate(appends, start=1)
    ]


def test_a_submission_stands_only_under_an_unused_id() -> None:
    (append,) = policy.submit(JOB, TEAM, spec(), "token:a", "t").appends
    assert (append.stream, append.expected, append.workspace) == (f"job-{JOB}", 0, TEAM)
    assert append.body == JobSubmitted(job=JOB, workspace=TEAM, spec=spec())


def test_the_same_submission_again_is_the_first_one() -> None:
    first = _story(said.submitted(JOB))[0]
    assert policy.submitted_before(first, TEAM, spec()) == (10, None)


def test_another_job_or_workspace_under_the_id_is_refused() -> None:
    first = _story(said.submitted(JOB))[0]
    for workspace, job in ((TEAM, spec(workers=2)), (Workspace("other"), spec())):
        _, rejected = policy.submitted_before(first, workspace, job)
        assert rejected is not None
        assert rejected.code == "job.id_taken"


def test_a_stop_rests_on_the_version_that_was_seen() -> None:
    stop = policy.stop(_story(said.submitted(JOB), said.queued(JOB)), "token:a", "why")
    assert stop.unit is not None
    (append,) = stop.unit.appends
    assert (append.expected, append.trace, append.cause) == (2, "t", "10")
    assert append.body == JobStopRequested(job=JOB, reason="why")


def test_a_second_stop_says_nothing_and_gives_the_first_ones_position() -> None:
    asked = said.lifecycle(JOB, JobStopRequested(job=JOB), 1)
    stop = policy.stop(_story(said.submitted(JOB), asked), "token:a", "")
    assert (stop.verdict, stop.phase, stop.position, stop.unit) == (
        "already_asked",
        "stopping",
        20,
        None,
    )


def test_a_job_that_ended_is_not_stopped() -> None:
    stop = policy.stop(_story(said.submitted(JOB), said.rejected(JOB)), "token:a", "")
    assert (stop.verdict, stop.phase, stop.unit) == ("already_final", "rejected", None)


def test_an_endless_reason_is_cut() -> None:
    stop = policy.stop(_story(said.submitted(JOB)), "token:a", "x" * 10_000)
    assert stop.unit is not None
    body = stop.unit.appends[0].body
    assert isinstance(body, JobStopRequested)
    assert len(body.reason) == policy.REASON_MAX


def test_a_token_is_created_once_and_revoked_for_good() -> None:
    created, _ = mint("member", "team", bytes(30))
    (made,) = policy.create_token(created, "token:a").appends
    (gone,) = policy.revoke_token(TokenId("x"), "token:a").appends
    assert (made.expected, made.closes) == (0, False)
    assert (gone.expected, gone.closes) == (1, True)
