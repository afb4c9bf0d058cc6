"""Which reported checkpoints are committed.

The newest, of the present attempt, from a node it is on.
"""

from ebbtide.checkpoint.model import Entry, Picture
from ebbtide.checkpoint.policy import answer, decide
from ebbtide.contracts.agents import CheckpointReport
from ebbtide.contracts.events import CheckpointCommitted
from ebbtide.contracts.ids import NodeNumber
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.testing import said
from ebbtide.testing.builders import TEAM, VirtualClock, job_name
from ebbtide.testing.logbook import decided, unit

JOB = job_name(1)


def _picture(attempt: int = 2, newest: int | None = None) -> Picture:
    committed = None
    if newest is not None:
        committed = CheckpointCommitted(
            job=JOB, attempt=1, round=1, step=newest, folder=f"step-{newest}", digest="", bytes=1
        )
    entry = Entry(
        workspace=TEAM,
        trace="",
        placed_epoch=1,
        attempt=attempt,
        nodes=(NodeNumber(1),),
        newest=committed,
    )
    return Picture(
        position=7, numbers={"n1": NodeNumber(1), "n2": NodeNumber(2)}, entries={JOB: entry}
    )


def _report(step: int = 10, attempt: int = 2, epoch: int = 1) -> CheckpointReport:
    return CheckpointReport(
        job=JOB,
        epoch=epoch,
        attempt=attempt,
        round=1,
        worker=0,
        step=step,
        folder=f"step-{step}",
        digest="",
        bytes=1,
    )


def _refusal(picture: Picture, report: CheckpointReport, node: str = "n1") -> str | None:
    ack = answer(picture, node, report)
    return ack.refused if ack is not None else None


def test_a_checkpoint_of_the_present_attempt_is_committed_under_guard_of_its_job() -> None:
    unit = decide(_picture(), [("n1", _report())]).units[0]
    assert unit.unmoved == (f"job-{JOB}",)
    assert unit.appends[0].body.step == 10


def test_a_checkpoint_of_an_earlier_attempt_is_fenced_off() -> None:
    assert _refusal(_picture(), _report(attempt=1)) == "checkpoint.fenced"


def test_a_checkpoint_of_an_earlier_epoch_is_fenced_off() -> None:
    assert _refusal(_picture(), _report(epoch=0)) == "checkpoint.fenced"


def test_a_node_without_the_job_cannot_commit_for_it() -> None:
    assert _refusal(_picture(), _report(), "n2") == "checkpoint.not_placed_there"


def test_an_older_step_is_refused_and_the_same_one_is_answered_as_committed() -> None:
    assert _refusal(_picture(newest=20), _report(step=10)) == "checkpoint.not_newer"
    assert answer(_picture(newest=20), "n1", _report(step=20)).position == 7


def test_of_several_reports_the_newest_step_counts() -> None:
    units = decide(_picture(), [("n1", _report(step)) for step in (10, 30, 20)]).units
    assert [unit.appends[0].body.step for unit in units] == [30]


def test_a_job_that_is_not_known_is_refused() -> None:
    assert _refusal(Picture(), _report()) == "checkpoint.job_unknown"


async def test_a_job_that_was_rejected_is_forgotten() -> None:
    log, picture = MemoryLog(VirtualClock()), Picture()
    await log.append(decided(unit(said.submitted(JOB)), unit(said.rejected(JOB, 0))))
    for recorded in await log.read(0, 10):
        picture.apply(recorded)
    assert picture.entries == {}
