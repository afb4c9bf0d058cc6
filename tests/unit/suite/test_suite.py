"""The sum at the end of a test run says no better than what happened."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).resolve().parents[2] / "suite.py"

REPORT = """<testsuites><testsuite>
<testcase name="a"/>
<testcase name="b"><failure message="no"/></testcase>
<testcase name="c"><error message="no"/></testcase>
<testcase name="d"><skipped type="pytest.skip" message="needs root"/></testcase>
<testcase name="e"><skipped type="pytest.xfail" message="known"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture(scope="module")
def suite() -> ModuleType:
    spec = importlib.util.spec_from_file_location("suite", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_failures_errors_and_skips_are_told_apart(suite: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert suite.read_report(report) == suite.Sum(2, 2, ("needs root",))


def test_a_skip_without_a_good_reason_is_a_failure_where_we_are_strict(suite: ModuleType) -> None:
    total = suite.judge_skips(suite.Sum(1, 0, ("felt like it", "needs root")), strict=True)
    assert total.failed == 1


def test_a_skip_is_only_told_where_we_are_not_strict(suite: ModuleType) -> None:
    assert suite.judge_skips(suite.Sum(1, 0, ("felt like it",)), strict=False).failed == 0


def test_a_star_stands_for_the_rest_of_a_reason(suite: ModuleType) -> None:
    assert suite.is_allowed("needs a GPU of type h100", ["needs a GPU*"])


def test_what_takes_too_long_is_ended(suite: ModuleType) -> None:
    assert suite.run(["sleep", "60"], 0.1) is None


def test_a_stage_over_its_budget_is_told(
    suite: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.tell_time("quick", 20, 10)
    assert capsys.readouterr().out == "quick: 20 s of 10 s  (OVER ITS BUDGET)\n"


def test_once_more_means_all_tests_but_those_of_frameworks(suite: ModuleType) -> None:
    folders = [name for one in suite.stages_for(again=True, long=False) for name in one.folders]
    present = {path.name for path in PATH.parent.iterdir() if any(path.rglob("test_*.py"))}
    assert sorted(folders) == sorted(present - {"frameworks"})


def test_budgets_add_up_to_less_than_what_the_whole_may_take(suite: ModuleType) -> None:
    set_up_s = 240
    stages = suite.stages_for(again=False, long=False)
    assert set_up_s + suite.CHECK_BUDGET_S + sum(one.budget_s for one in stages) < 25 * 60
