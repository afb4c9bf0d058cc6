"""Ports for rendezvous: held, given up to their worker, and not used again at once."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ebbtide.agent.ports import Ports, ephemeral_start
from ebbtide.contracts.errors import Unavailable

EPHEMERAL = 32768
Make = Callable[..., Ports]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Ports] = []

    def one(name: str = "port", start: int = 0, ephemeral: int = EPHEMERAL) -> Ports:
        if start:
            (tmp_path / name).write_text(str(start))
        made.append(Ports(tmp_path / name, ephemeral))
        return made[-1]

    yield one
    for ports in made:
        ports.close()


def test_ports_taken_one_after_the_other_differ_although_each_was_released(make: Make) -> None:
    ports = make()
    taken = []
    for _ in range(5):
        taken.append(ports.take())
        ports.release(taken[-1])
    assert len(set(taken)) == 5


def test_the_cursor_goes_on_after_a_restart(make: Make) -> None:
    first = make()
    before = first.take()
    first.release(before)
    assert make().take() != before


def test_a_held_port_cannot_be_bound_by_others_until_it_is_let_go(make: Make) -> None:
    ports = make()
    port = ports.take()
    with socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        ports.let_bind(port)
        other.bind(("127.0.0.1", port))


def test_two_agents_of_a_machine_never_give_the_same_port(make: Make) -> None:
    one = make("a")
    first = one.take()
    one.let_bind(first)
    assert make("b", start=first).take() != first


def test_a_port_that_somebody_else_uses_is_passed_over(make: Make) -> None:
    one = make("a")
    port = one.take()
    one.release(port)
    with socket.socket() as other:
        other.bind(("", port))
        assert make("b", start=port).take() != port


def test_a_port_in_use_stays_held_when_the_cursor_comes_round_to_it(make: Make) -> None:
    ports = make(ephemeral=20003)
    taken = {ports.take() for _ in range(3)}
    with pytest.raises(Unavailable):
        ports.take()
    for port in taken:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))


def test_no_port_at_all_is_said(make: Make) -> None:
    ports = make(ephemeral=20003)
    with pytest.raises(Unavailable):
        [ports.take() for _ in range(4)]


def test_the_kernels_own_range_is_kept_out_of() -> None:
    assert ephemeral_start("32768\t60999\n") == 32768
    assert ephemeral_start("") == EPHEMERAL
