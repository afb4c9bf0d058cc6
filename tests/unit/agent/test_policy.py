"""What the agent does about desired state, given what it knows."""

import msgspec

from ebbtide.agent.model import WorkerKey
from ebbtide.agent.policy import Bury, End, Fence, Phase, Prepare, Start, Step, decide
from ebbtide.contracts.agents import DesiredAttempt
from ebbtide.contracts.ids import JobId
from ebbtide.testing.builders import desired_attempt

JOB = JobId("job_main_01J00000000000000000000001")


class Seen(msgspec.Struct):
    phase: Phase
    ordered: bool = False


def attempt(workers: int = 1, **changes: object) -> DesiredAttempt:
    return desired_attempt(JOB, workers=workers, **{"grace_s": 9, **changes})


def key(worker: int = 0, number: int = 1, epoch: int = 1, round_: int = 1) -> WorkerKey:
    return WorkerKey(JOB, epoch, number, round_, worker)


def steps(
    *attempts: DesiredAttempt,
    known: dict[WorkerKey, Seen] | None = None,
    fence: Fence = (0, 0, 0),
    lease: bool = True,
) -> list[Step]:
    fences: dict[str, Fence] = {
        JOB: max([fence, *((a.epoch, a.attempt, a.round) for a in attempts if not a.end)])
    }
    return list(decide(attempts, {JOB: known or {}}, fences, lease))


def test_a_lone_worker_starts_at_once() -> None:
    one = attempt()
    assert steps(one) == [Start(one, one.workers[0])]


def test_a_gang_without_master_is_prepared() -> None:
    one = attempt(workers=2)
    assert steps(one) == [Prepare(one, worker) for worker in one.workers]


def test_a_prepared_gang_starts_when_it_has_a_master() -> None:
    one = attempt(workers=2, master="n1:20000")
    known = {key(0): Seen(Phase.PREPARED), key(1): Seen(Phase.PREPARED)}
    assert steps(one, known=known) == [Start(one, worker) for worker in one.workers]


def test_a_gang_that_was_never_prepared_starts_when_it_has_a_master() -> None:
    one = attempt(workers=2, master="n1:20000")
    assert steps(one) == [Start(one, worker) for worker in one.workers]


def test_nothing_is_done_about_what_is_as_desired() -> None:
    for phase in (Phase.STARTING, Phase.RUNNING, Phase.ENDED):
        assert steps(attempt(), known={key(): Seen(phase)}) == []


def test_a_gang_of_one_node_of_several_waits_for_its_master() -> None:
    one = attempt(world=3)
    assert steps(one, known={key(): Seen(Phase.PREPARED)}) == []


def test_an_attempt_to_end_ends_what_lives_of_it() -> None:
    one = attempt(workers=2, end="preempted")
    known = {key(0): Seen(Phase.RUNNING), key(1): Seen(Phase.STARTING)}
    assert steps(one, known=known) == [End(key(0), 9), End(key(1), 9)]


def test_an_attempt_to_end_is_ordered_once() -> None:
    assert steps(attempt(end="preempted"), known={key(): Seen(Phase.RUNNING, ordered=True)}) == []


def test_an_attempt_to_end_buries_what_never_started() -> None:
    one = attempt(workers=2, end="preempted")
    known = {key(0): Seen(Phase.PREPARED)}
    assert steps(one, known=known) == [Bury(key(0), "ended first"), Bury(key(1), "ended first")]


def test_an_attempt_to_end_leaves_ended_workers_alone() -> None:
    assert steps(attempt(end="preempted"), known={key(): Seen(Phase.ENDED)}) == []


def test_an_attempt_to_end_that_names_nobody_ends_everybody_of_it() -> None:
    one = attempt(workers=0, end="stop_requested")
    known = {key(): Seen(Phase.RUNNING), key(number=2): Seen(Phase.RUNNING)}
    assert steps(one, known=known) == [End(key(), 9)]


def test_a_lower_attempt_never_starts_after_a_higher_was_seen() -> None:
    assert steps(attempt(), fence=(1, 2, 1)) == [Bury(key(), "a later attempt was seen here")]


def test_a_lower_attempt_of_a_newer_epoch_starts() -> None:
    one = attempt(epoch=2)
    assert steps(one, fence=(1, 7, 1)) == [Start(one, one.workers[0])]


def test_a_later_attempt_first_has_the_earlier_ended() -> None:
    known = {key(): Seen(Phase.RUNNING)}
    assert steps(attempt(attempt=2), known=known) == [End(key(), 9)]


def test_a_later_attempt_buries_what_was_only_prepared_of_the_earlier() -> None:
    one = attempt(attempt=2)
    known = {key(): Seen(Phase.PREPARED)}
    assert steps(one, known=known) == [Bury(key(), "a later attempt was seen here")]


def test_a_later_attempt_waits_for_the_earlier() -> None:
    assert steps(attempt(attempt=2), known={key(): Seen(Phase.RUNNING, ordered=True)}) == []


def test_a_later_attempt_starts_when_the_earlier_has_ended() -> None:
    one = attempt(attempt=2)
    assert steps(one, known={key(): Seen(Phase.ENDED)}) == [Start(one, one.workers[0])]


def test_a_later_round_waits_for_the_earlier_too() -> None:
    assert steps(attempt(round=2), known={key(): Seen(Phase.RUNNING)}) == [End(key(), 9)]


def test_without_a_lease_nothing_starts_that_ends_with_it() -> None:
    assert steps(attempt(when_cut_off="stop"), lease=False) == []


def test_without_a_lease_what_runs_on_starts() -> None:
    assert len(steps(attempt(when_cut_off="run"), lease=False)) == 1


def test_without_a_lease_ends_are_obeyed() -> None:
    one = attempt(when_cut_off="stop", end="preempted")
    assert steps(one, known={key(): Seen(Phase.RUNNING)}, lease=False) == [End(key(), 9)]
