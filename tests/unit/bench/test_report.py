"""What is noted of a measurement, also of one that fails."""

import json
from pathlib import Path

import pytest

from tests.bench import page
from tests.bench.invocation import Invocation, Tree
from tests.bench.processes import busy_s
from tests.bench.ratios import ratio
from tests.bench.ratios import text as compared
from tests.bench.report import BUSY_CPUS, Figure, Report, read_report, reason, write
from tests.bench.sampling import Series


def measured(p50: float = 3.0, *, others_cpus: float = 0.0) -> Report:
    """A report of one figure."""
    report = Report()
    with report.measuring(1, "One run") as figure:
        figure.line("a run", Series([1.0, p50, 9.0]))
        figure.value("a count", 7.0, "KiB", at_most=8)
        figure.others_cpus = others_cpus
    return report


def fail(error: BaseException) -> None:
    raise error


def interrupted(report: Report) -> None:
    """One line, and then an interrupt."""
    with report.attempt("vm"), report.measuring(1, "One run") as figure:
        figure.line("a run", Series([1.0]))
        fail(KeyboardInterrupt())


def test_a_figure_that_fails_keeps_what_it_has_and_the_next_one_is_measured() -> None:
    report = Report()
    with report.measuring(13, "Cold containers") as figure:
        figure.line("a run", Series([1.0]))
        fail(RuntimeError("the service answered 503: not yet\nand a second line"))
    with report.measuring(14, "The next") as figure:
        figure.line("a run", Series([2.0]))
    assert [len(each.lines) for each in report.figures] == [1, 1]
    assert report.figures[0].notes == ["not whole: RuntimeError: the service answered 503: not yet"]
    assert str(report.failures[0]) == "figure 13 failed: RuntimeError: the service answered 503: not yet"
    assert "figure 13 failed" in report.text()


def test_a_figure_without_numbers_says_that_it_was_not_measured() -> None:
    report = Report()
    with report.measuring(13, "Cold containers"):
        fail(TimeoutError())
    assert report.figures[0].notes == ["not measured: TimeoutError"]


def test_an_interrupt_is_noted_in_its_figure_and_goes_on_upwards() -> None:
    report = Report()
    with pytest.raises(KeyboardInterrupt):
        interrupted(report)
    assert report.figures[0].notes == ["not whole: interrupted"]
    assert not report.failures


def test_a_reason_has_no_word_that_may_be_a_token() -> None:
    token = "pt_" + "aB3" * 12
    assert reason(RuntimeError(f"401 for {token}, twice")) == "RuntimeError: 401 for [...], twice"


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    report = measured(others_cpus=1.75)
    report.fail("limits", "its process ended with -9")
    write(tmp_path / "new" / "bench.json", report.document())
    assert read_report(tmp_path / "new" / "bench.json") == report
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["bench.json"]


@pytest.mark.parametrize(("others_cpus", "comparable"), [(0.0, True), (BUSY_CPUS, True), (1.51, False)])
def test_a_figure_measured_beside_others_is_marked_everywhere(
    tmp_path: Path, others_cpus: float, *, comparable: bool
) -> None:
    report = measured(others_cpus=others_cpus)
    document = Invocation(True, Tree("", tmp_path, tmp_path, report)).document()
    (figure,) = document["figures"]
    assert (figure["others_cpus"], figure["comparable"]) == (others_cpus, comparable)
    tables = page.markdown(document).splitlines()
    rows = [next(each for each in tables if what in each) for what in ("| a count (1) |", "**1. One run**")]
    for shown in (report.text(), compared(report, Report(), "abc"), *rows):
        assert ("not to be compared" in shown) == (not comparable)


def test_the_table_of_two_commits_has_both_and_their_ratio() -> None:
    base = measured(4.0)
    base.figures.append(Figure(2, "Only there"))
    base.fail("limits", "ModuleNotFoundError: No module named 'app.new'")
    table = compared(measured(3.0), base, "abc")
    rows = {line.split("  ")[1].strip(): line.split()[-6:] for line in table.splitlines() if "   a " in line}
    assert rows["a run, ms"] == ["1.000", "1.000", "1.000", "3.000", "4.000", "0.750"]
    assert rows["a count, KiB"] == ["-", "-", "-", "7.000", "7.000", "1.000"]
    assert "2. Only there" in table
    assert "here: not measured" in table
    assert "base: limits failed: ModuleNotFoundError: No module named 'app.new'" in table


@pytest.mark.parametrize(("here", "base", "what"), [(3.0, 4.0, 0.75), (None, 4.0, None), (3.0, 0.0, None)])
def test_a_ratio_takes_two_numbers(here: float | None, base: float | None, what: float | None) -> None:
    assert ratio(here, base) == what


def test_processors_that_wait_for_a_disk_are_not_busy() -> None:
    idle = busy_s("cpu  100 0 100 500 900 0 0 0 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    assert busy_s("cpu  100 0 100 999 999 0 0 0 0 0\n") == idle
    assert busy_s("cpu  100 100 100 999 999 0 0 100 0 0\n") == 2 * idle


def test_the_document_is_json_with_the_load_of_both_ends(tmp_path: Path) -> None:
    document = Invocation(False, Tree("", tmp_path, tmp_path)).document()
    assert {"load_before", "load_after"} <= json.loads(json.dumps(document))["machine"].keys()
