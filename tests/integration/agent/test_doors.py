"""The door of the node: what workers say with ebbtide.train, and what is done about it."""

import msgspec
from tests.integration.agent.rig import Rig, attempt, job

from ebbtide.chassis.bus import Message
from ebbtide.contracts import subjects
from ebbtide.contracts.agents import CheckpointAck, CheckpointReport
from ebbtide.testing.waiting import wait_until

SAVE = """
from ebbtide import train
with train.save(10) as folder:
    (folder / "model").write_bytes(b"weights")
print("committed", flush=True)
"""
HEARD = list[CheckpointReport]


async def catalogue(rig: Rig, ack: CheckpointAck | None) -> HEARD:
    heard: HEARD = []

    async def hear(message: Message) -> None:
        heard.append(msgspec.json.decode(message.data, type=CheckpointReport))
        if ack:
            await rig.fleet.bus.publish(message.reply, msgspec.json.encode(ack))

    await rig.fleet.bus.subscribe(subjects.agents("main", "checkpoint"), hear)
    return heard


async def test_a_committed_checkpoint_reaches_the_catalogue(rig: Rig) -> None:
    heard = await catalogue(rig, CheckpointAck(position=7))
    await rig.fleet.desire(attempt("python", "-c", SAVE))
    assert (await rig.fleet.ended()).status == 0
    await wait_until(lambda: bool(heard), "the catalogue has heard of it")
    one = heard[0]
    assert (one.job, one.step, one.bytes) == (job(), 10, 7)
    assert (rig.store / "checkpoints" / job() / one.folder / "manifest.json").exists()
    await wait_until(lambda: not pending(rig), "its word is settled")


def pending(rig: Rig) -> list[str]:
    return [path.name for path in (rig.state / "checkpoints").iterdir()]


async def test_a_workers_word_survives_agent_and_catalogue(rig: Rig) -> None:
    await rig.fleet.desire(attempt("python", "-c", SAVE))
    assert (await rig.fleet.ended()).status == 0
    await rig.stop_agent()
    assert len(pending(rig)) == 1
    heard = await catalogue(rig, CheckpointAck(position=7))
    rig.start_agent()
    await wait_until(lambda: bool(heard), "the catalogue has heard of it")


async def test_a_commit_waits_for_an_agent_that_is_away(rig: Rig) -> None:
    wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    await rig.fleet.desire(attempt("python", "-c", wait + SAVE))
    await rig.fleet.running()
    await rig.stop_agent()
    rig.let_go()
    folder = rig.store / "checkpoints" / job()
    await wait_until(lambda: any(folder.glob("*/manifest.json")), "the checkpoint is sealed")
    rig.start_agent()
    assert (await rig.fleet.ended()).status == 0


async def test_a_refused_checkpoint_is_given_up(rig: Rig) -> None:
    heard = await catalogue(rig, CheckpointAck(refused="checkpoint.fenced"))
    await rig.fleet.desire(attempt("python", "-c", SAVE))
    await wait_until(lambda: bool(heard), "the catalogue has heard of it")
    await wait_until(lambda: not pending(rig), "nothing is left to say")


async def test_a_worker_cannot_speak_for_another(rig: Rig) -> None:
    forge = "import os; os.environ['EBB_KEY'] = os.environ['EBB_KEY'].replace('.0:', '.1:')\n"
    await rig.fleet.desire(attempt("python", "-c", forge + SAVE))
    assert (await rig.fleet.ended()).status == 1 << 8
    assert rig.has_line(
        "ebbtide.train.checkpoints.CheckpointError: step 10 was refused: "
        "this key opens nothing here"
    )


async def test_progress_is_passed_on(rig: Rig) -> None:
    told: list[bytes] = []

    async def hear(message: Message) -> None:
        told.append(message.data)

    await rig.fleet.bus.subscribe(subjects.agents("main", "progress"), hear)
    say = "from ebbtide import train; train.progress(round=3, loss=0.5)"
    await rig.fleet.desire(attempt("python", "-c", say))
    await wait_until(lambda: bool(told), "it is told")
    assert list(msgspec.json.decode(told[0]).values()) == [{"round": 3, "loss": 0.5}]
