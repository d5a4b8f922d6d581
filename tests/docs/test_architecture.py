"""docs/architecture.md: every claim names a test that is there, and the drawing has every process of the tables."""

import re

import pytest

from tests.docs.pages import page, plain, table
from tests.docs.test_guarantees import names_in

PAGE = page("architecture")
(DRAWING,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
NAMED = sorted(set(re.findall(r"`(tests/[\w/.-]+\.py)::(\w+)`", PAGE)))
PROCESSES = table(PAGE, "process", "its user", "what it can reach", "what shows it")
SECRETS = table(PAGE, "secret", "who has it", "who does not, and what shows it")


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_test_that_is_named_is_there(path: str, name: str) -> None:
    assert name in names_in(path)


@pytest.mark.parametrize("row", [*PROCESSES, *SECRETS], ids=lambda row: row[0])
def test_every_row_names_a_test(row: tuple[str, ...]) -> None:
    assert "`tests/" in row[-1]


def test_every_process_is_in_the_drawing() -> None:
    assert len(PROCESSES) == 6
    for process, *_ in PROCESSES:
        assert plain(process).split(",")[0] in DRAWING


def test_the_credential_is_in_the_drawing_at_the_broker_and_at_the_api_alone() -> None:
    boxes = [line for line in DRAWING.splitlines() if "CREDENTIAL" in line]
    assert len(boxes) == 1
    assert "private key" in boxes[0]
