"""Another commit in a worktree of its own, by the real git and make."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.bench import base
from tests.bench.__main__ import INTERRUPTED, bench, parse
from tests.unit.bench.fakes import FakeRunner, quiet

MAKEFILE = """
setup-dev:
	@test -e new.py && exit 1 || mkdir -p .venv/bin && touch .venv/bin/python
"""


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    done = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits: the environment of the first can be made, that of the second cannot."""
    root = tmp_path / "repository"
    for each in base.COPIED:
        (root / each).mkdir(parents=True)
        (root / each / "now.py").write_text("old")
    (root / "tests" / "bench" / "gone.py").write_text("old")
    (root / "Makefile").write_text(MAKEFILE)
    (root / ".gitignore").write_text("/build/\n/.venv/\n")
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "one")
    (root / "new.py").touch()
    (root / "tests" / "bench" / "gone.py").unlink()
    (root / "tests" / "bench" / "now.py").write_text("committed")
    git(root, "add", "--all", ".")
    git(root, "commit", "--quiet", "-m", "two")
    (root / "tests" / "bench" / "now.py").write_text("not committed")
    return root


def worktrees(root: Path) -> list[str]:
    return git(root, "worktree", "list", "--porcelain").split("\n\n")


def test_a_base_has_its_own_code_and_the_present_bench(repository: Path) -> None:
    with base.built(repository, "HEAD~1") as tree:
        assert tree.root.is_relative_to(repository / "build" / "base")
        assert git(tree.root, "rev-parse", "HEAD").startswith(tree.name)
        assert tree.python.is_relative_to(tree.root)
        assert tree.python.exists()
        assert not (tree.root / "new.py").exists()
        assert [each.name for each in (tree.root / "tests" / "bench").iterdir()] == ["now.py"]
        assert (tree.root / "tests" / "bench" / "now.py").read_text() == "not committed"
    assert not tree.root.exists()
    assert len(worktrees(repository)) == 1


def test_an_interrupt_leaves_what_was_measured_and_no_worktree(repository: Path) -> None:
    sha, out = git(repository, "rev-parse", "HEAD~1")[:12], repository / "build" / "bench.json"
    runner = FakeRunner({("http", sha): KeyboardInterrupt()})
    assert bench(parse(["--base", "HEAD~1", "--out", str(out)]), repository, runner, quiet) == INTERRUPTED
    assert runner.turns == [("vm", ""), ("vm", sha), ("http", ""), ("http", sha)]
    document = json.loads(out.read_text())
    assert [each["number"] for each in document["figures"]] == [1, 2, 3, 4, 8]
    assert [each["number"] for each in document["base"]["figures"]] == [1, 2, 3]
    assert not [*(repository / "build" / "base").iterdir()]
    assert len(worktrees(repository)) == 1


def test_a_part_that_cannot_run_on_the_base_says_so_and_costs_nothing_else(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sha, out = git(repository, "rev-parse", "HEAD~1")[:12], repository / "build" / "bench.json"
    runner = FakeRunner({("limits", sha): ModuleNotFoundError("No module named 'app.new'")})
    options = parse(["--only", "6,7", "--base", "HEAD~1", "--out", str(out)])
    assert bench(options, repository, runner, quiet) == 0
    assert "base: figure 6 failed: ModuleNotFoundError: No module named 'app.new'" in capsys.readouterr().out
    assert [each["number"] for each in json.loads(out.read_text())["base"]["figures"]] == [6, 7]


@pytest.mark.parametrize("commit", ["nothing", "--help", "HEAD"])
def test_a_base_that_cannot_be_made_is_refused_before_anything_is_measured(
    repository: Path, commit: str, capfd: pytest.CaptureFixture[str]
) -> None:
    runner, out = FakeRunner(), repository / "build" / "bench.json"
    assert bench(parse([f"--base={commit}", "--out", str(out)]), repository, runner, quiet) == 2
    assert not runner.turns
    assert not out.exists()
    assert len(worktrees(repository)) == 1
    assert ("setup-dev" if commit == "HEAD" else "no commit") in capfd.readouterr().err


def test_what_a_killed_bench_left_is_in_nobodys_way(repository: Path) -> None:
    place = repository / "build" / "base" / git(repository, "rev-parse", "HEAD~1")[:12]
    git(repository, "worktree", "add", "--quiet", "--detach", str(place), "HEAD~1")
    (place / "new.py").touch()
    with base.built(repository, "HEAD~1") as tree:
        assert tree.root == place
    assert len(worktrees(repository)) == 1
