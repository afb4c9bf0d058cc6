"""Ports for rendezvous: held, given up to their worker, and not used again at once."""

import socket
from pathlib import Path

import pytest

from ebbtide.agent.ports import Ports, ephemeral_start
from ebbtide.contracts.errors import Unavailable


def test_ports_taken_one_after_the_other_differ_although_each_was_released(tmp_path: Path) -> None:
    ports = Ports(tmp_path / "port", 32768)
    taken = []
    for _ in range(5):
        taken.append(ports.take())
        ports.release(taken[-1])
    assert len(set(taken)) == 5


def test_the_cursor_goes_on_after_a_restart(tmp_path: Path) -> None:
    ports = Ports(tmp_path / "port", 32768)
    before = ports.take()
    ports.close()
    assert Ports(tmp_path / "port", 32768).take() > before


def test_a_held_port_cannot_be_bound_by_others_until_it_is_let_go(tmp_path: Path) -> None:
    ports = Ports(tmp_path / "port", 32768)
    port = ports.take()
    with socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        ports.let_bind(port)
        other.bind(("127.0.0.1", port))


def test_two_agents_of_a_machine_never_give_the_same_port(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("25000")
    (tmp_path / "b").write_text("25000")
    one, two = Ports(tmp_path / "a", 32768), Ports(tmp_path / "b", 32768)
    first = one.take()
    one.let_bind(first)
    assert two.take() != first


def test_a_port_in_use_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "port").write_text("25500")
    with socket.socket() as other:
        other.bind(("", 25500))
        assert Ports(tmp_path / "port", 32768).take() > 25500


def test_no_port_at_all_is_said(tmp_path: Path) -> None:
    ports = Ports(tmp_path / "port", 20001)
    ports.take()
    with pytest.raises(Unavailable):
        ports.take()


def test_the_kernels_own_range_is_kept_out_of() -> None:
    assert ephemeral_start("32768\t60999\n") == 32768
    assert ephemeral_start("") == 32768
