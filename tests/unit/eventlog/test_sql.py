"""Named blocks of SQL files."""

import pytest

from ebbtide.eventlog import sql


def test_blocks_are_found_by_name_and_what_stands_before_them_is_left_out() -> None:
    text = "-- about this file\n\n-- name: one\nSELECT 1;\n\n-- name: two\n-- why\nSELECT 2;\n"
    assert sql.blocks(text) == {"one": "SELECT 1;", "two": "-- why\nSELECT 2;"}


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="one"):
        sql.blocks("-- name: one\nSELECT 1;\n-- name: one\nSELECT 2;\n")


def test_a_package_brings_its_own_file() -> None:
    assert sql.load("ebbtide.eventlog")["head"].startswith("SELECT epoch, position")
