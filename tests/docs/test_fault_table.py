"""The table of what dies when, in docs/run-results.md: every row names a test that exists, and no fault's test is left out."""

import re

import pytest

from tests.docs.pages import page, table
from tests.docs.test_guarantees import names_in

ROWS = table(page("run-results"), "what dies, and when", "the caller is told")
FOLDER = "tests/integration/service"
_TEST = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
_BESIDE = {
    "test_postgres_away_at_authentication_marks_only_what_has_no_key",
    "test_a_service_killed_before_it_recorded_an_end_knows_less_at_its_next_start",
}
"""Said under the table."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_its_test(row: tuple[str, ...]) -> None:
    ((file, name),) = _TEST.findall(row[3])
    assert name in names_in(f"{FOLDER}/{file}")


def test_every_test_of_a_fault_has_its_row() -> None:
    named = {name for row in ROWS for _, name in _TEST.findall(row[3])}
    tests = {name for name in names_in(f"{FOLDER}/test_faults.py") if name.startswith("test_")}
    assert tests - named == _BESIDE
