"""Stories in words."""

import msgspec
import pytest

from ebbtide.cli.story import words
from ebbtide.client import StoryEvent
from ebbtide.contracts.events import (
    EVENT_TYPES,
    AttemptEnded,
    AttemptStopRequested,
    Event,
    FirstFailure,
    JobFailed,
    JobRestarting,
    JobStopRequested,
    WorkerEnded,
)
from ebbtide.contracts.ids import JobId, NodeNumber
from ebbtide.contracts.outcomes import EndCause, KeepAll, KeepAllBut, KeepNone, Outcome
from ebbtide.testing import said
from ebbtide.testing.builders import START, job_name

JOB = job_name(1)


def _event(body: dict[str, object]) -> StoryEvent:
    return StoryEvent(epoch=1, position=1, stream="s", version=1, at=START, body=body)


def _words(body: Event) -> str:
    return words(_event(msgspec.to_builtins(body)))


def test_a_failure_names_who_was_first_and_who_followed() -> None:
    first = FirstFailure(worker=1, node="n2", cause=EndCause.SIGNALLED, status=9)
    ended = AttemptEnded(job=JOB, attempt=1, outcome=Outcome.FAILED, first=first, following=(0, 2))
    assert _words(ended) == (
        "attempt 1 ended: failed; first: worker 1 on n2 was killed by SIGKILL; "
        "following: workers 0, 2"
    )


def test_many_followers_are_counted_and_not_listed() -> None:
    ended = AttemptEnded(job=JOB, attempt=1, outcome=Outcome.FAILED, following=tuple(range(100)))
    assert _words(ended).endswith("following: workers 0, 1, 2, 3, 4, 5, 6, 7 and 92 more")


def test_a_worker_that_was_told_to_end_is_not_blamed() -> None:
    ended = WorkerEnded(
        job=JOB,
        attempt=1,
        round=1,
        worker=2,
        node="n1",
        cause=EndCause.SIGNALLED,
        status=15,
        ordered=True,
    )
    assert _words(ended) == "worker 2 on n1 was killed by SIGTERM, as ordered"


def test_a_restart_says_where_when_from_what_and_why() -> None:
    same = JobRestarting(
        job=JOB,
        attempt=2,
        keep=KeepAll(),
        counted=True,
        backoff_ms=1500,
        resume_step=30,
        why="worker 1 failed",
    )
    assert _words(same) == (
        "restarting as attempt 2 on the same nodes after 1.5 s, from the checkpoint of step 30: "
        "worker 1 failed"
    )


@pytest.mark.parametrize(
    ("keep", "told"),
    [
        (KeepNone(), "restarting as attempt 2 placed anew, not counted"),
        (
            KeepAllBut(nodes=(NodeNumber(1),)),
            "restarting as attempt 2 without 1 node of before, not counted",
        ),
    ],
)
def test_a_restart_elsewhere_says_so(keep: KeepNone | KeepAllBut, told: str) -> None:
    assert _words(JobRestarting(job=JOB, attempt=2, keep=keep, counted=False)) == told


def test_who_ended_the_attempt_is_named() -> None:
    stop = AttemptStopRequested(job=JOB, attempt=1, reason="worker_failed", worker=3)
    assert _words(stop) == "the rest of attempt 1 is ended: worker failed by worker 3"


def test_control_characters_of_others_are_shown_and_not_obeyed() -> None:
    stop = JobStopRequested(job=JOB, reason="\x1b[2J\u202egone\n")
    assert _words(stop) == "stop requested: \\x1b[2J\\u202egone\\n"


def test_a_code_stands_before_its_words() -> None:
    assert _words(JobFailed(job=JOB, code="job.failed", detail="why")) == "failed: job.failed: why"


def test_an_event_of_a_later_release_is_told_by_its_name_and_facts() -> None:
    later = _event({"type": "job.cloned", "job": "j", "into": "k"})
    assert words(later) == 'job.cloned {"job":"j","into":"k"}'


@pytest.mark.parametrize("tag", sorted(EVENT_TYPES))
def test_every_event_type_has_a_sentence_of_its_own(tag: str) -> None:
    """A type that only had its name and facts to show would begin with its tag."""
    example = _example(EVENT_TYPES[tag])
    told = words(_event(msgspec.to_builtins(example)))
    assert told
    assert not told.startswith(tag)


def _example(kind: type[msgspec.Struct]) -> msgspec.Struct:
    facts: dict[str, object] = {
        "job": JobId("j"),
        "workspace": "team",
        "quota": "default",
        "code": "x.y",
        "detail": "d",
        "attempt": 1,
        "placement": "p",
        "charge": "in_quota",
        "reason": "hang",
        "change": "drain",
        "mode": "drain",
        "outcome": "lost",
        "keep": {"type": "none"},
        "counted": True,
        "round": 1,
        "worker": 0,
        "node": 1 if kind.__struct_config__.tag.startswith("node.") else "n1",
        "pid": 1,
        "started_at": START,
        "cause": "lost",
        "pool": "p",
        "places": [],
        "total": {},
        "name": "n1",
        "address": "a",
        "boot": "b",
        "capacity": {},
        "why": "w",
        "ceiling": {},
        "token": "t",
        "kind": "admin",
        "subject": "",
        "secret_sha256": "",
        "step": 1,
        "folder": "f",
        "digest": "d",
        "bytes": 1,
        "spec": msgspec.to_builtins(_spec()),
    }
    return msgspec.convert({**facts, "type": kind.__struct_config__.tag}, kind)


def _spec() -> object:
    body = said.submitted(JOB).body
    return getattr(body, "spec", None)
