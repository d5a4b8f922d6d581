"""Another commit to measure: its own code and environment, with the present bench, so that both are measured alike."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench import owned
from tests.bench.invocation import Tree, say

COPIED: Final = ("tests/bench", "tests/support")


class CannotBuildError(Exception):
    """There is no such commit, or its environment cannot be made."""


@contextmanager
def built(root: Path, commit: str) -> Iterator[Tree]:
    """The commit in a worktree below `root`'s build folder, which is removed on the way out."""
    try:
        sha = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
    except subprocess.CalledProcessError:
        raise CannotBuildError(f"there is no commit {commit!r}") from None
    place = root / "build" / "base" / sha[:12]
    try:
        _remove(root, place)  # of an earlier bench that was killed
        _git(root, "worktree", "add", "--quiet", "--detach", str(place), sha)
        for each in COPIED:
            shutil.rmtree(place / each, ignore_errors=True)
            shutil.copytree(root / each, place / each, ignore=shutil.ignore_patterns("__pycache__"))
        say(f"making the environment of {sha[:12]}")
        if status := owned.run(("make", "setup-dev"), place, _environment(), end_s=0):
            raise CannotBuildError(f"`make setup-dev` of {sha[:12]} ended with {status}")
        yield Tree(sha[:12], place, place / ".venv" / "bin" / "python")
    finally:
        _remove(root, place)


def _remove(root: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    _git(root, "worktree", "prune")


def _git(root: Path, *words: str) -> str:
    """In a session of its own: an interrupt at the terminal is for the bench alone."""
    done = subprocess.run(
        ("git", *words), cwd=root, check=True, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    return done.stdout.strip()


def _environment() -> dict[str, str]:
    """Ours without what a make above us tells the makes below it."""
    return {
        name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
    }
