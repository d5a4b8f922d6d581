"""Each test file is in one layer, and each promise is proven without the long one."""

import re
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT, files, short
from tests.conftest import COMPONENTS
from tests.docs.pages import page, table
from tests.support import layers

FILES = [
    path
    for path in files()
    if path.is_relative_to(layers.TESTS) and path.name.startswith("test_") and path.suffix == ".py"
]
_TEST = re.compile(r"`(tests/[\w/.-]+\.py)::\w+`")


@pytest.mark.parametrize("path", FILES, ids=short)
def test_a_test_file_is_in_one_layer(path: Path) -> None:
    assert layers.layer_of(path) in layers.LAYERS


@pytest.mark.parametrize("place", layers.PLACES)
def test_a_place_is_there(place: str) -> None:
    assert (layers.TESTS / place).exists()


@pytest.mark.parametrize("entry", layers.ALONE)
def test_what_runs_alone_is_there(entry: str) -> None:
    file, _, name = entry.partition("::")
    assert not name or f"def {name.rpartition('::')[2]}(" in (ROOT / file).read_text()


def test_what_one_wall_is_tried_with_in_a_file_stays_together() -> None:
    name = max(layers.durations(), key=layers.seconds)
    ids = [f"{name}::{test}[{case}]" for case in ("runc", "x-runc") for test in ("test_one", "test_two")]
    assert {layers.piece(each) for each in ids} == {f"{name}::runc"}


@pytest.mark.parametrize("name", sorted(layers.ANY_RUNTIME))
def test_what_no_runtime_decides_runs_under_gvisor_in_the_long_layer_alone(name: str) -> None:
    assert (ROOT / name).is_file()
    assert layers.later(f"{name}::test_x[runsc-y]", "runsc-y")
    assert not layers.later(f"{name}::test_x[runc-y]", "runc-y")


def test_every_component_is_asked_for_in_some_layer() -> None:
    assert frozenset().union(*layers.COMPONENTS.values()) == COMPONENTS.keys()


@pytest.mark.parametrize("row", table(page("guarantees"), "no.", "promise", "test"), ids=lambda row: row[0])
def test_a_promise_is_proven_in_a_layer_that_ci_runs_whole(row: tuple[str, ...]) -> None:
    named = _TEST.findall(row[2])
    assert not named or {layers.layer_of(ROOT / each) for each in named} & {"check", "fast", "walls"}
