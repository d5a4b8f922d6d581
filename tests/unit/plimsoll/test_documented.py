"""What a caller gets back is on the client's page, field by field."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import plimsoll
from plimsoll.contract.rest import RunView

PAGE = Path(__file__).resolve().parents[3] / "docs" / "python-client.md"
(SECTION,) = re.findall(
    r"^## What comes back\n(.*?)^## ", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
RUN, VIEW, REST = re.split(r"^A `RunView`|^A `RunHandle`", SECTION, flags=re.MULTILINE)


def properties(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        (RUN, {field.name for field in fields(plimsoll.Run)} | properties(plimsoll.Run)),
        (VIEW, set(RunView.model_fields)),
        (REST, properties(plimsoll.RunHandle)),
        (REST, {field.name for each in (plimsoll.Accepted, plimsoll.Output) for field in fields(each)}),
    ],
    ids=["Run", "RunView", "RunHandle", "events"],
)
def test_every_field_is_on_the_page(shown: str, names: set[str]) -> None:
    assert names <= set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", shown))))
