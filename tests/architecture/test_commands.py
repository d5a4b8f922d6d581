"""The lists of commands are true: what `make` prints, and what CI and the workflows call."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT, named, short
from tests.conftest import COMPONENTS

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
CALLERS = [
    ROOT / ".ci" / "run",
    *(path for path in named(".yml", ".yaml") if ".github" in path.parts),
    *named(".md"),
]
# A command of its own, in backquotes, after a prompt or at a line's start; not the verb in a sentence.
_CALL = re.compile(
    r"(?:^\s*(?:\$ )?|`|run: |&& |[A-Z_]+=\S+ )make((?: [a-z][a-z-]*)+)(?=`|\s*$|\s+[&|#A-Z\"])", re.MULTILINE
)


def test_make_without_a_target_lists_every_target() -> None:
    listing = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[1] for line in listing.splitlines()} == TARGETS


def test_every_target_is_phony_and_explained() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    assert set(phony.split()) == TARGETS
    assert set(re.findall(r"^([a-z][a-z-]*):.*## \S", MAKEFILE, re.MULTILINE)) == TARGETS


@pytest.mark.parametrize("path", CALLERS, ids=short)
def test_only_targets_that_exist_are_called(path: Path) -> None:
    called = {word for call in _CALL.findall(path.read_text()) for word in call.split()}
    assert called <= TARGETS


def test_ci_insists_on_every_component() -> None:
    """What may be skipped on somebody's machine is never skipped in CI."""
    (names,) = re.findall(r"PLIMSOLL_REQUIRE=(\S+)", (ROOT / ".ci" / "run").read_text())
    assert set(names.split(",")) == COMPONENTS.keys()


@pytest.mark.parametrize("path", named(".yml"), ids=short)
def test_a_workflow_requires_only_components_that_exist(path: Path) -> None:
    for names in re.findall(r"PLIMSOLL_REQUIRE: (\S+)", path.read_text()):
        assert set(names.split(",")) <= COMPONENTS.keys()
