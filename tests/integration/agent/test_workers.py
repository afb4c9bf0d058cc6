"""Workers of a real keeper: started, ended, and what is said of them."""

import signal
import sys
from pathlib import Path

import pytest
from tests.integration.agent.rig import Rig, attempt, job, lives, put_code, shell

from ebbtide.chassis.job_logs import read_range
from ebbtide.contracts.agents import Desired
from ebbtide.contracts.outcomes import EndCause
from ebbtide.testing.waiting import wait_until


async def test_a_worker_that_succeeds_is_reported_ended_with_status_zero(rig: Rig) -> None:
    await rig.fleet.desire(shell("echo hello"))
    report = await rig.fleet.ended()
    assert (report.cause, report.status, report.log_bytes) == (EndCause.EXITED, 0, 6)


async def test_a_worker_that_fails_keeps_its_raw_wait_status(rig: Rig) -> None:
    await rig.fleet.desire(shell("exit 3"))
    report = await rig.fleet.ended()
    assert (report.cause, report.status, report.ordered) == (EndCause.EXITED, 3 << 8, False)


async def test_a_worker_that_kills_itself_is_signalled(rig: Rig) -> None:
    await rig.fleet.desire(shell("kill -11 $$"))
    report = await rig.fleet.ended()
    assert (report.cause, report.status and report.status & 0x7F) == (EndCause.SIGNALLED, 11)


async def test_a_command_that_is_not_there_is_a_failed_start_with_its_name(rig: Rig) -> None:
    await rig.fleet.desire(attempt("no-such-program"))
    report = await rig.fleet.ended()
    assert (report.cause, report.status) == (EndCause.START_FAILED, 127 << 8)
    assert "no-such-program" in report.detail


async def test_a_command_is_found_in_the_working_directory_if_path_says_so(rig: Rig) -> None:
    code = put_code(rig.store, {"mine": b"#!/bin/sh\nexit 3\n"}, mode=0o700)
    await rig.fleet.desire(attempt("mine", code=code, env={"PATH": "/nowhere:"}))
    report = await rig.fleet.ended()
    assert (report.cause, report.status) == (EndCause.EXITED, 3 << 8)


async def test_a_worker_sees_its_place_and_nothing_of_the_agent(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EBB_AGENT_TOKEN", "secret")
    await rig.fleet.desire(shell("env; pwd; ls -A", env={"MINE": "1"}))
    await rig.fleet.ended()
    text = rig.lines()
    assert "EBB_AGENT" not in text
    assert "MINE=1" in text
    assert "RANK=0" in text
    assert "EBB_NODE=n1" in text
    assert text.rstrip().endswith("/work"), "the working directory is its own, and empty"


async def test_a_worker_without_gang_gets_a_rendezvous_of_its_own(rig: Rig) -> None:
    await rig.fleet.desire(shell("echo $MASTER_ADDR:$MASTER_PORT"))
    report = await rig.fleet.ended()
    assert rig.lines().strip() == f"127.0.0.1:{report.port}"


async def test_a_program_is_found_along_the_workers_own_path(rig: Rig) -> None:
    await rig.fleet.desire(attempt("python", "-c", "import sys; print(sys.executable)"))
    await rig.fleet.ended()
    assert Path(rig.lines().strip()).parent == Path(sys.executable).parent


# Signals 32 and 33, which glibc keeps to itself: a program started by its posix_spawn, as make's
# are, ignores them, hands that on, and nobody can set them back.
GLIBC_SIGNALS = 0b11 << 31


async def test_a_worker_inherits_no_blocked_and_no_ignored_signal(
    rig: Rig,
) -> None:
    rig.keeper.kill()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    rig.keeper.start()
    signal.signal(signal.SIGHUP, before)
    await rig.restart_agent()
    blocked = "grep SigBlk /proc/self/status; grep SigIgn /proc/self/status"
    await rig.fleet.desire(shell(blocked))
    await rig.fleet.ended()
    _, is_blocked, _, is_ignored = rig.lines().split()
    assert int(is_blocked, 16) & ~GLIBC_SIGNALS == 0
    assert int(is_ignored, 16) & ~GLIBC_SIGNALS == 0


async def test_every_descendant_is_gone_before_a_worker_counts_as_ended(rig: Rig) -> None:
    daemon = "setsid sh -c 'echo $$ > pid; exec sleep 600' & while [ ! -s pid ]; do :; done"
    await rig.fleet.desire(shell(daemon))
    await rig.fleet.ended()
    assert [lives(pid) for pid in rig.pids()] == [False]


async def test_a_worker_that_writes_nothing_leaves_nothing(rig: Rig) -> None:
    await rig.fleet.desire(shell("true"))
    await rig.fleet.ended()
    await wait_until(lambda: rig.slots() == [], "the slot is free again")
    assert not list(rig.store.rglob("*.zst"))


async def test_slots_are_used_again_and_start_clean(rig: Rig) -> None:
    await rig.fleet.desire(shell("echo one > left-behind; mkdir d; chmod 0 d; echo output"))
    await rig.fleet.ended()
    await wait_until(lambda: rig.slots() == [], "the slot is free again")
    await rig.fleet.desire(shell("ls -A", number=2))
    report = await rig.fleet.ended(number=2)
    assert report.log_bytes == 0


async def test_workers_started_at_once_all_end(rig: Rig) -> None:
    await rig.fleet.desire(*(shell("exit 0", number=number) for number in range(40)))
    for number in range(40):
        assert (await rig.fleet.ended(number=number)).status == 0


async def test_a_start_waits_for_a_keeper_that_is_away(rig: Rig) -> None:
    await rig.fleet.desire(shell("true"))
    await rig.fleet.ended()
    rig.keeper.kill()
    # The spare sitter, forked before, serves one more; the next two need the keeper.
    await rig.fleet.desire(*(shell("sleep 0.1", number=number) for number in (2, 3, 4)))
    rig.keeper.start()
    for number in (2, 3, 4):
        assert (await rig.fleet.ended(number=number)).status == 0


async def test_the_same_desired_state_again_starts_nothing_twice(rig: Rig) -> None:
    one = shell("echo ran")
    await rig.fleet.desire(one)
    await rig.fleet.ended()
    await rig.fleet.desire(one)
    await wait_until(lambda: rig.slots() == [], "the slot is free again")
    await rig.fleet.desire(one, shell("true", number=2))
    await rig.fleet.ended(number=2)
    assert read_stored(rig).splitlines() == [b"ran"]


def read_stored(rig: Rig) -> bytes:
    return read_range(rig.store, job(), 1, 0, 0, 1 << 20)[0]


async def test_an_older_desired_state_is_ignored(rig: Rig) -> None:
    await rig.fleet.desire(shell("true"))
    await rig.fleet.ended()
    await rig.fleet.write(Desired(epoch=1, position=0, attempts=(shell("true", number=2),)))
    await rig.fleet.desire(shell("true", number=3))
    await rig.fleet.ended(number=3)
    assert rig.fleet.state(number=2) is None


async def test_code_is_checked_unpacked_and_a_copy_of_its_own(rig: Rig) -> None:
    code = put_code(rig.store, {"main.sh": b"cat data; echo changed > data", "data": b"original\n"})
    await rig.fleet.desire(attempt("sh", "main.sh", code=code))
    await rig.fleet.ended()
    await rig.fleet.desire(attempt("sh", "main.sh", code=code, number=2))
    assert (await rig.fleet.ended(number=2)).log_bytes == len("original\n")


async def test_code_that_the_store_does_not_have_is_a_failed_start(rig: Rig) -> None:
    await rig.fleet.desire(shell("true", code="sha256:" + "0" * 64))
    report = await rig.fleet.ended()
    assert (report.cause, report.status) == (EndCause.START_FAILED, None)
    assert "no code folder" in report.detail
