"""How folders of migrations are read."""

from pathlib import Path

import pytest

from ebbtide.eventlog.migrate import LOG_MIGRATIONS, MigrationBrokenError, migrations_in


def test_files_are_taken_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("0002_more.sql", "0001_first.sql", "notes.txt"):
        (tmp_path / name).write_text("SELECT 1;")
    assert [step.name for step in migrations_in(tmp_path)] == ["0001_first.sql", "0002_more.sql"]


@pytest.mark.parametrize(
    "names", [["1_first.sql"], ["0002_second.sql"], ["0001_a.sql", "0001_b.sql"]]
)
def test_files_that_are_not_numbered_one_by_one_are_refused(
    tmp_path: Path, names: list[str]
) -> None:
    for name in names:
        (tmp_path / name).write_text("SELECT 1;")
    with pytest.raises(MigrationBrokenError):
        migrations_in(tmp_path)


def test_the_log_brings_its_own() -> None:
    assert migrations_in(LOG_MIGRATIONS)[0].name == "0001_log.sql"
