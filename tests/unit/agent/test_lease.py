"""Whose lease it is, and until when."""

from pathlib import Path

import msgspec
import pytest

from ebbtide.agent.lease import (
    DeadlineFile,
    GiveUp,
    Held,
    Own,
    TakeOver,
    judge,
    next_value,
)
from ebbtide.agent.sitter import lease_left_s
from ebbtide.chassis.bus import Entry
from ebbtide.chassis.clock import boottime_s
from ebbtide.contracts.agents import Lease
from ebbtide.contracts.ids import NodeName

OWN = Own(NodeName("n1"), "boot-2", "me", 180.0)


def entry(revision: int = 7, **changes: object) -> Entry:
    value = Lease(node=OWN.node, boot="boot-1", holder="me", count=4, lease_ms=180_000)
    return Entry("n1", msgspec.json.encode(msgspec.structs.replace(value, **changes)), revision)


def test_a_key_that_is_not_there_is_taken_over_as_new() -> None:
    assert judge(OWN, None) == TakeOver(Held(0, 0))


def test_our_own_value_means_that_only_an_answer_was_lost() -> None:
    assert judge(OWN, entry()) == TakeOver(Held(7, 4))


def test_our_own_value_of_a_former_boot_is_ours() -> None:
    assert isinstance(judge(OWN, entry(boot="another")), TakeOver)


def test_a_lease_that_was_taken_away_is_given_up() -> None:
    verdict = judge(OWN, entry(taken=True))
    assert isinstance(verdict, GiveUp)
    assert (verdict.held.revision, verdict.why) == (7, "it was taken away")


def test_a_lease_of_another_holder_is_given_up() -> None:
    assert isinstance(judge(OWN, entry(holder="another")), GiveUp)


def test_a_value_that_cannot_be_read_is_not_ours() -> None:
    assert isinstance(judge(OWN, Entry("n1", b"{", 7)), GiveUp)


def test_each_renewal_writes_another_value() -> None:
    first = next_value(OWN, Held(0, 0))
    assert (first.count, first.boot, first.lease_ms) == (1, "boot-2", 180_000)
    assert next_value(OWN, Held(1, first.count)).count == 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lease"


def test_a_sitter_reads_the_deadline_that_the_agent_wrote(path: Path) -> None:
    file = DeadlineFile(path)
    file.write(boottime_s() + 100)
    assert 99 < lease_left_s(str(path).encode()) <= 100


def test_a_missing_deadline_has_passed(path: Path) -> None:
    assert lease_left_s(str(path).encode()) == 0


def test_a_half_written_deadline_has_passed(path: Path) -> None:
    path.write_text("99999999999999999999 9999")
    assert lease_left_s(str(path).encode()) == 0


def test_a_deadline_is_read_back_after_a_restart(path: Path) -> None:
    DeadlineFile(path).write(1234.5)
    assert DeadlineFile(path).read() == 1234.5
