"""Logs: written by the worker itself, read from the node while it has them, then from the store."""

import os
import signal

import pytest
from tests.integration.agent.rig import Rig, job, shell, sitters_of

from ebbtide.chassis.job_logs import CUT, read_range
from ebbtide.testing.waiting import wait_until


def stored(rig: Rig) -> bytes:
    return read_range(rig.store, job(), 1, 0, 0, 1 << 24)[0]


async def test_a_log_is_in_the_store_to_its_last_byte_once_its_end_is_settled(rig: Rig) -> None:
    await rig.fleet.desire(shell("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"))
    report = await rig.fleet.ended()
    await wait_until(lambda: rig.slots() == [], "the node is done with it")
    text = stored(rig)
    assert len(text) == report.log_bytes
    assert text.endswith(b"line 19999\n")
    assert not (await rig.fleet.read_log()).known


async def test_a_running_workers_log_is_read_from_its_node(rig: Rig) -> None:
    await rig.fleet.desire(shell("echo one; echo two >&2; sleep 600"))
    await rig.fleet.running()
    await wait_until(lambda: rig.has_line("two"), "it has written")
    chunk = await rig.fleet.read_log(offset=4)
    assert (chunk.data, chunk.offset, chunk.size, chunk.ended) == (b"two\n", 4, 8, False)


@pytest.mark.parametrize(
    "spoil",
    [
        "rm ../log; mkfifo ../log",
        "rm ../log; mkdir ../log",
        # Never a file of the machine's: an agent that runs as root would empty it.
        "mkdir -p $EBB_CHECKPOINTS; ln -sf $EBB_CHECKPOINTS/theirs ../log; echo theirs >../log",
        "rm -rf ../log ../work",
        "chmod 000 ../log .. .",
        "cd ..; rmdir work; mkdir -m 700 other; ln -s other work",
    ],
)
async def test_what_a_worker_does_to_its_folder_is_not_the_next_ones_trouble(
    rig: Rig, spoil: str
) -> None:
    await rig.fleet.desire(shell(f"echo mine; {spoil}; exit 0"))
    await rig.fleet.ended()
    await wait_until(lambda: rig.slots() == [], "the node is done with it")
    assert stored(rig) in (b"", b"mine\n")
    await rig.fleet.desire(shell("echo next; pwd -P", number=2))
    assert (await rig.fleet.ended(number=2)).status == 0
    await wait_until(lambda: rig.slots() == [], "the node is done with that too")
    text = read_range(rig.store, job(2), 1, 0, 0, 1 << 20)[0].decode()
    assert text == f"next\n{rig.state.resolve()}/workers/0000/work\n"


async def test_a_log_that_its_worker_cut_short_is_read_on_in_the_same_offsets(rig: Rig) -> None:
    wait = "while [ ! -e go ]; do sleep 0.01; done"
    command = f"head -c 300000 /dev/zero | tr '\\0' x; {wait}; truncate -s 0 ../log; echo two"
    await rig.fleet.desire(shell(f"{command}; sleep 600"))
    await rig.fleet.running()
    await wait_until(lambda: len(stored(rig)) == 300_000, "it has written, and that is stored")
    rig.let_go()
    begins = 300_000 + len(CUT)
    await wait_until(lambda: stored(rig)[300_000:begins] == CUT, "the cut was noticed")
    assert not (await rig.fleet.read_log(offset=300_000)).known, "the store has it"
    chunk = await rig.fleet.read_log(offset=begins)
    assert (chunk.data, chunk.offset, chunk.size) == (b"two\n", begins, begins + 4)


async def test_a_follower_is_answered_when_there_is_more(rig: Rig) -> None:
    await rig.fleet.desire(shell("echo one; while [ ! -e go ]; do sleep 0.01; done; echo two"))
    await rig.fleet.running()
    await wait_until(lambda: rig.has_line("one"), "it has written")
    rig.let_go()
    assert (await rig.fleet.read_log(offset=4, wait_ms=5000)).data == b"two\n"


async def test_a_follower_hears_that_a_log_has_ended(rig: Rig) -> None:
    rig.fleet.deaf = True
    await rig.fleet.desire(shell("echo one"))
    await rig.fleet.ended()
    chunk = await rig.fleet.read_log(offset=4, wait_ms=5000)
    assert (chunk.data, chunk.ended, chunk.size) == (b"", True, 4)


async def test_the_last_lines_before_a_crash_are_there(rig: Rig) -> None:
    await rig.fleet.desire(shell("echo last words; kill -9 $$"))
    await rig.fleet.ended()
    await wait_until(lambda: stored(rig) == b"last words\n", "they are in the store")


async def test_the_last_lines_before_a_lost_end_are_there(rig: Rig) -> None:
    await rig.fleet.desire(shell("echo last words; sleep 600"))
    await rig.fleet.running()
    await wait_until(lambda: rig.has_line("last words"), "it has written")
    os.kill(sitters_of(rig.state)[0], signal.SIGKILL)
    assert (await rig.fleet.ended()).log_bytes == len("last words\n")
    await wait_until(lambda: stored(rig) == b"last words\n", "they are in the store")


async def test_a_log_grows_in_the_store_without_gap_or_double_over_a_restart(rig: Rig) -> None:
    rig.fleet.deaf = True
    await rig.fleet.desire(shell("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end"))
    report = await rig.fleet.ended()
    await rig.stop_agent()
    rig.fleet.deaf = False
    rig.start_agent()
    await wait_until(lambda: rig.slots() == [], "the node is done with it")
    assert stored(rig) == b"x" * 3_000_000 + b"\nend\n"
    assert report.log_bytes == len(stored(rig))
