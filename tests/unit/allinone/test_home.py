"""What a home chooses once, keeps, and makes private."""

import os
import re
import socket
from pathlib import Path

import pytest

from ebbtide.allinone.home import (
    Home,
    HomeError,
    Platform,
    choose,
    default_home,
    free_port,
    require_free,
)
from ebbtide.allinone.plan import without_credentials


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    return made


def platform(*, nodes: int = 1, capacity: str = "", started: bool = False) -> Platform:
    return Platform("main", 1, 2, 3, nodes=nodes, capacity=capacity, started=started)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_secret_is_made_once_and_kept(home: Home) -> None:
    assert home.secret("nats.password") == home.secret("nats.password")


def test_secrets_are_readable_by_their_owner_alone(home: Home) -> None:
    home.secret("nats.password")
    assert mode(home.secrets) == 0o700
    assert mode(home.secrets / "nats.password") == 0o600


def test_a_token_says_what_kind_it_is(home: Home) -> None:
    assert re.fullmatch(r"ebb_agent_[0-9a-f]+_[0-9a-f]+", home.node_token("node-1"))


def test_each_node_has_a_token_of_its_own(home: Home) -> None:
    assert home.node_token("node-1") != home.node_token("node-2")


def test_rights_of_a_folder_that_exists_are_not_changed(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o750)
    Home(folder).create()
    assert mode(folder) == 0o750


def test_a_platform_that_ran_keeps_its_ports() -> None:
    kept = platform(started=True)
    assert choose(kept, "other") == kept


def test_a_platform_that_never_ran_gets_new_ports_but_keeps_its_nodes() -> None:
    chosen = choose(platform(nodes=3), "main")
    assert chosen.nodes == 3
    assert min(chosen.api_port, chosen.postgres_port, chosen.nats_port) > 1024


def test_what_was_chosen_is_read_back(home: Home) -> None:
    home.save(platform(nodes=4, capacity="cpu=2"))
    assert home.load() == platform(nodes=4, capacity="cpu=2")


def test_a_damaged_choice_is_named_and_not_replaced(home: Home) -> None:
    (home.folder / "platform.json").write_text("{")
    with pytest.raises(HomeError, match=r"platform\.json is damaged"):
        home.load()


def test_a_kept_port_that_a_stranger_took_is_named(home: Home) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        with pytest.raises(HomeError, match=rf"port {port} .* kept for api.* api_port"):
            require_free({"api": port}, home)


def test_a_chosen_port_is_below_those_that_the_kernel_lends_out() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert free_port() < lowest


def test_a_home_in_use_is_locked(home: Home) -> None:
    lock = home.lock()
    assert lock is not None
    assert home.lock() is None
    os.close(lock)


def test_a_named_home_wins() -> None:
    assert default_home({"EBB_HOME": "/somewhere"}) == Path("/somewhere")


def test_agents_get_an_address_without_the_services_password() -> None:
    assert (
        without_credentials("nats://services:se%40cret@127.0.0.1:4222") == "nats://127.0.0.1:4222"
    )
