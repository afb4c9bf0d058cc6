"""Orders to end: SIGTERM to the group, a grace, then nothing is left; and tombstones."""

import msgspec
from tests.integration.agent.rig import NODE, Rig, attempt, lives, shell

from ebbtide.contracts import seals, subjects
from ebbtide.contracts.agents import Desired, DesiredAttempt, WorkerState
from ebbtide.contracts.ids import TokenId
from ebbtide.contracts.outcomes import EndCause
from ebbtide.testing.waiting import wait_until


def to_end(one: DesiredAttempt, **changes: object) -> DesiredAttempt:
    return msgspec.structs.replace(one, end="stop_requested", **changes)


async def test_a_worker_told_to_end_gets_sigterm_and_its_end_is_ordered(rig: Rig) -> None:
    one = shell("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done")
    await rig.fleet.desire(one)
    await wait_until(lambda: rig.has_line("up"), "it runs")
    await rig.fleet.desire(to_end(one))
    report = await rig.fleet.ended()
    assert (report.cause, report.status, report.ordered) == (EndCause.EXITED, 7 << 8, True)


async def test_the_whole_process_group_gets_sigterm(rig: Rig) -> None:
    child = "(trap 'echo child; exit' TERM; echo up; while :; do sleep 0.01; done) & wait; wait"
    one = shell(f"trap : TERM; {child}")
    await rig.fleet.desire(one)
    await wait_until(lambda: rig.has_line("up"), "the child runs")
    await rig.fleet.desire(to_end(one))
    await wait_until(lambda: rig.has_line("child"), "the child got the signal")
    await rig.fleet.ended()


async def test_a_worker_that_does_not_listen_is_killed_after_its_grace(rig: Rig) -> None:
    one = shell("trap '' TERM; echo up; while :; do sleep 0.01; done")
    await rig.fleet.desire(one)
    await wait_until(lambda: rig.has_line("up"), "it runs")
    await rig.fleet.desire(to_end(one, grace_s=0))
    report = await rig.fleet.ended()
    assert (report.cause, report.status, report.ordered) == (EndCause.SIGNALLED, 9, True)


async def test_a_worker_that_froze_its_sitter_is_ended_all_the_same(rig: Rig) -> None:
    one = shell("kill -STOP $PPID; echo up; sleep 600")
    await rig.fleet.desire(one)
    await wait_until(lambda: rig.has_line("up"), "the sitter is frozen")
    await rig.fleet.desire(to_end(one))
    report = await rig.fleet.ended()
    assert (report.cause, report.status, report.ordered) == (EndCause.SIGNALLED, 15, True)


async def test_what_left_the_group_is_killed_too(rig: Rig) -> None:
    one = shell("setsid sh -c 'trap \"\" TERM; echo $$ > pid; exec sleep 600' & sleep 600")
    await rig.fleet.desire(one)
    await wait_until(lambda: bool(rig.pids()), "the other session runs")
    pid = rig.pids()[0]
    await rig.fleet.desire(to_end(one))
    await rig.fleet.ended()
    assert not lives(pid)


async def test_an_attempt_that_never_started_is_buried_and_reported(rig: Rig) -> None:
    one = attempt("true", workers=2)
    await rig.fleet.desire(to_end(one))
    for worker in (0, 1):
        report = await rig.fleet.ended(worker=worker)
        assert (report.cause, report.ordered) == (EndCause.NOT_STARTED, True)


async def test_what_was_buried_never_starts(rig: Rig) -> None:
    one = shell("echo ran")
    await rig.fleet.desire(to_end(one))
    await rig.fleet.ended()
    await rig.fleet.desire(one, shell("true", number=2))
    assert (await rig.fleet.ended(number=2)).status == 0
    assert rig.fleet.state() is WorkerState.ENDED
    assert not any(report.workers[0].log_bytes for report in rig.fleet.heard)


async def test_what_was_buried_never_starts_after_a_restart_either(rig: Rig) -> None:
    one = shell("echo ran")
    await rig.fleet.desire(to_end(one))
    await rig.fleet.ended()
    await wait_until(lambda: rig.slots() == [], "only a tombstone is left")
    await rig.restart_agent()
    await rig.fleet.desire(one, shell("true", number=2))
    await rig.fleet.ended(number=2)
    assert rig.fleet.newest[one.job, 1, 0].cause is EndCause.NOT_STARTED


async def test_an_end_that_names_no_workers_ends_all_the_node_knows(rig: Rig) -> None:
    one = shell("sleep 600")
    await rig.fleet.desire(one)
    await rig.fleet.running()
    await rig.fleet.desire(to_end(one, workers=(), world=0, grace_s=0))
    assert (await rig.fleet.ended()).ordered


async def test_what_desired_state_does_not_name_is_left_alone(rig: Rig) -> None:
    await rig.fleet.desire(shell("sleep 600"))
    running = await rig.fleet.running()
    await rig.fleet.desire(shell("true", number=2))
    await rig.fleet.ended(number=2)
    assert lives(running.pid)


async def test_an_order_is_kept_through_a_restart_of_the_agent(rig: Rig) -> None:
    one = shell("trap '' TERM; echo up; while :; do sleep 0.01; done", grace_s=60)
    await rig.fleet.desire(one)
    await wait_until(lambda: rig.has_line("up"), "it runs")
    await rig.fleet.desire(to_end(one))
    await wait_until(lambda: b"\nO " in (rig.state / "lives").read_bytes(), "it is ordered")
    await rig.stop_agent()
    await rig.fleet.desire(to_end(one, grace_s=0))
    rig.start_agent()
    report = await rig.fleet.ended()
    assert (report.status, report.ordered) == (9, True)


async def test_a_later_attempt_waits_until_the_earlier_is_gone_and_ends_it(rig: Rig) -> None:
    one = shell("trap 'sleep 0.2; exit' TERM; echo up; while :; do sleep 0.01; done")
    await rig.fleet.desire(one)
    await wait_until(lambda: rig.has_line("up"), "it runs")
    later = msgspec.structs.replace(shell("true"), attempt=2)
    await rig.fleet.desire(later)
    second = await rig.fleet.ended(attempt=2)
    first = rig.fleet.newest[one.job, 1, 0]
    assert first.ended_at is not None
    assert second.started_at is not None
    assert first.ended_at <= second.started_at


async def test_an_earlier_attempt_never_starts_after_a_later_was_seen(rig: Rig) -> None:
    await rig.fleet.desire(msgspec.structs.replace(shell("true"), attempt=2))
    await rig.fleet.ended(attempt=2)
    await rig.fleet.desire(shell("true"))
    assert (await rig.fleet.ended(attempt=1)).cause is EndCause.NOT_STARTED


async def test_an_agent_with_a_token_takes_orders_only_under_its_seal(rig: Rig) -> None:
    """Another agent could have the server itself write here, but knows no seal."""
    rig.token = "ebb_agent_a1_secret"
    await rig.restart_agent()
    bucket = subjects.desired_bucket(rig.fleet.cell)
    body = msgspec.json.encode(Desired(epoch=1, position=9, attempts=(shell("echo forged"),)))
    keys = {TokenId("a1"): seals.fingerprint(rig.token)}
    revision = await rig.fleet.bus.kv_put(bucket, NODE, body, 0)
    other = seals.seal("n2", body, keys)
    revision = await rig.fleet.bus.kv_put(bucket, NODE, other, revision)
    true = msgspec.json.encode(Desired(epoch=1, position=8, attempts=(shell("true", number=2),)))
    await rig.fleet.bus.kv_put(bucket, NODE, seals.seal(NODE, true, keys), revision)
    assert (await rig.fleet.ended(number=2)).status == 0
    assert rig.fleet.state(number=1) is None


async def test_what_was_wanted_of_a_former_life_of_the_machine_is_not_started(rig: Rig) -> None:
    former = Desired(epoch=1, position=1, attempts=(shell("true"),), boot="former")
    await rig.fleet.write(former)
    present = Desired(epoch=1, position=2, attempts=(shell("true", number=2),), boot="boot")
    await rig.fleet.write(present)
    await rig.fleet.ended(number=2)
    assert rig.fleet.state(number=1) is None
