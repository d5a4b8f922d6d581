"""docs/guarantees.md: numbers without gaps, and every promise names a test that exists or says that it has none."""

import ast
import re

import pytest

from tests.architecture.repository import ROOT
from tests.docs.pages import page, table

ROWS = table(page("guarantees"), "no.", "promise", "test")
NO_TEST = "no test"
_TEST = re.compile(r"`(tests/[\w/.-]+\.py)::(\w+)`")


def names_in(path: str) -> set[str]:
    """Names of the test functions in a file, methods included."""
    file = ROOT / path
    assert file.is_file(), f"{path} does not exist"
    found = ast.walk(ast.parse(file.read_bytes()))
    return {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_promises_are_numbered_without_gaps() -> None:
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, len(ROWS) + 1)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_promise_names_its_tests_or_admits_the_gap(row: tuple[str, ...]) -> None:
    proof = row[2]
    tests = _TEST.findall(proof)
    assert tests or proof.startswith(NO_TEST), "a promise without a test says so"
    for path, name in tests:
        assert name.startswith("test_"), name
        assert name in names_in(path), f"{path} has no {name}"
