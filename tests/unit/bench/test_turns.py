"""Parts take turns in two trees, and each keeps what others lose."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.__main__ import INTERRUPTED, Processes, bench, parse
from tests.bench.invocation import Invocation, Tree, take_turns
from tests.bench.parts import PARTS
from tests.unit.bench.fakes import FakeRunner, quiet


def written(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def numbers(report: dict[str, Any]) -> list[int]:
    return [each["number"] for each in report["figures"]]


def test_each_part_is_measured_here_and_then_there(tmp_path: Path) -> None:
    runner, parts = FakeRunner(), PARTS[:3]
    trees = (Tree("", tmp_path, tmp_path), Tree("abc", tmp_path, tmp_path))
    take_turns(Invocation(True, *trees), parts, runner, quiet, tmp_path / "out")
    assert runner.turns == [(part.name, name) for part in parts for name in ("", "abc")]
    document = written(tmp_path / "out")
    assert numbers(document) == numbers(document["base"]) == [1, 2, 3, 4, 6, 8]
    assert document["base"]["commit"] == "abc"


def test_what_a_part_measured_is_written_before_the_next_one_begins(tmp_path: Path) -> None:
    out, seen = tmp_path / "out", list[list[int]]()
    runner = FakeRunner(before=lambda: seen.append(numbers(written(out)) if out.exists() else []))
    bench(parse(["--only", "1,6,7", "--out", str(out)]), tmp_path, runner, quiet)
    assert seen == [[], [1, 2], [1, 2, 6]]


def test_a_part_that_fails_costs_nothing_else_but_the_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, runner = tmp_path / "out", FakeRunner({("limits", ""): RuntimeError("503")})
    assert bench(parse(["--out", str(out)]), tmp_path, runner, quiet) == 1
    document = written(out)
    assert numbers(document) == list(range(1, 19))
    assert document["failures"] == [{"what": "figure 6", "why": "RuntimeError: 503"}]
    assert document["figures"][5]["lines"]
    printed = capsys.readouterr()
    assert "figure 6 failed: RuntimeError: 503" in printed.err
    assert "figure 6 failed: RuntimeError: 503" in printed.out
    assert "17. Figure 17" in printed.out


def test_nothing_fails_and_the_exit_status_is_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(parse(["--only", "7", "--out", str(tmp_path / "out")]), tmp_path, FakeRunner(), quiet) == 0
    printed = capsys.readouterr().err.splitlines()
    assert printed[0].startswith("bench: load ")
    assert printed[-1].startswith("bench: load ")


def test_an_interrupt_keeps_what_was_measured(tmp_path: Path) -> None:
    out, runner = tmp_path / "out", FakeRunner({("limits", ""): KeyboardInterrupt()})
    assert bench(parse(["--out", str(out)]), tmp_path, runner, quiet) == INTERRUPTED
    document = written(out)
    assert numbers(document) == [1, 2, 3, 4, 6, 8]
    assert document["figures"][4]["notes"] == ["not whole: interrupted"]
    assert [part for part, _ in runner.turns] == ["vm", "http", "limits"]


@pytest.mark.parametrize(
    ("program", "why"),
    [("exit 3", "its process ended with 3"), ("kill -9 $$", "its process ended with -9")],
)
def test_a_part_whose_process_ends_early_is_noted_and_leaves_no_data(
    tmp_path: Path, program: str, why: str
) -> None:
    python, tree = tmp_path / "python", Tree("", tmp_path, tmp_path / "python")
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    Processes(tmp_path, quick=True).run(PARTS[0], tree)
    assert [str(each) for each in tree.report.failures] == [f"vm failed: {why}"]
    assert [each.name for each in tmp_path.iterdir()] == ["python"]


def test_a_figure_has_the_higher_use_of_before_and_after_its_turn(tmp_path: Path) -> None:
    uses = iter([0.1, 1.9, 0.2, 0.3])
    bench(
        parse(["--only", "5,6,7", "--out", str(tmp_path / "out")]), tmp_path, FakeRunner(), lambda: next(uses)
    )
    figures = {each["number"]: each for each in written(tmp_path / "out")["figures"]}
    assert {number: each["others_cpus"] for number, each in figures.items()} == {6: 1.9, 5: 1.9, 7: 0.3}
    assert {number: each["comparable"] for number, each in figures.items()} == {6: False, 5: False, 7: True}


def test_only_takes_the_parts_with_these_figures() -> None:
    assert [part.name for part in parse(["--only", "16,4,3"]).only] == ["http", "calls"]
    assert parse([]).only == PARTS


@pytest.mark.parametrize("words", [["--only", "99"], ["--only", "x"], ["--only", "4", "--page"]])
def test_faulty_options_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(words)
    assert "figure" in capsys.readouterr().err


def test_each_figure_is_in_one_part() -> None:
    assert sorted(number for part in PARTS for number in part.figures) == list(range(1, 19))
