"""Finding the platform."""

from pathlib import Path

import pytest

from ebbtide.client.environment import Where, find
from ebbtide.contracts.errors import Malformed, Unavailable


def _home(folder: Path, platform: str = '{"url": "http://127.0.0.1:1", "cell": "c"}') -> Path:
    (folder / "secrets").mkdir()
    (folder / "secrets" / "admin.token").write_text("ebb_admin_x_y\n")
    (folder / "platform.json").write_text(platform)
    return folder


def test_the_environment_comes_first(tmp_path: Path) -> None:
    environ = {"EBB_URL": "http://far:1", "EBB_TOKEN": "t", "EBB_HOME": str(_home(tmp_path))}
    assert find(environ) == Where("http://far:1", "t", "")


def test_without_it_the_local_home_tells_address_token_and_cell(tmp_path: Path) -> None:
    found = find({"EBB_HOME": str(_home(tmp_path))})
    assert found == Where("http://127.0.0.1:1", "ebb_admin_x_y", "c")


def test_a_token_of_ones_own_is_used_on_the_local_platform(tmp_path: Path) -> None:
    found = find({"EBB_HOME": str(_home(tmp_path)), "EBB_TOKEN": "mine"})
    assert (found.url, found.token) == ("http://127.0.0.1:1", "mine")


def test_the_local_admins_token_is_never_shown_to_a_platform_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(Malformed) as caught:
        find({"EBB_URL": "http://far:1", "EBB_HOME": str(_home(tmp_path))})
    assert caught.value.rejected.field == "EBB_TOKEN"


def test_without_any_platform_it_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="ebb up"):
        find({"EBB_HOME": str(tmp_path)})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 1}'])
def test_a_damaged_home_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(Malformed, match=r"platform\.json"):
        find({"EBB_HOME": str(_home(tmp_path, text))})


@pytest.mark.parametrize("token", ["a\nb", "a b", "ebb_admin_a1_ü", "a\x00"])
def test_a_token_that_can_be_none_is_refused_without_showing_it(tmp_path: Path, token: str) -> None:
    with pytest.raises(Malformed) as caught:
        find({"EBB_HOME": str(tmp_path), "EBB_URL": "http://x", "EBB_TOKEN": token})
    assert caught.value.rejected.field == "EBB_TOKEN"
    assert token not in str(caught.value.rejected)
