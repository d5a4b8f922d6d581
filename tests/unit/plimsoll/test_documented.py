"""What a caller gets back is on the client's page, field by field."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import plimsoll
from plimsoll.client.results import AnyRun
from plimsoll.contract.rest import RunView
from plimsoll.contract.results import Artifact, StepResult

PAGE = Path(__file__).resolve().parents[3] / "docs" / "python-client.md"
(SECTION,) = re.findall(
    r"^## What comes back\n(.*?)^## ", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
RUN, VIEW, REST = re.split(r"^A `RunView`|^A `RunHandle`", SECTION, flags=re.MULTILINE)


EVENTS = (plimsoll.Accepted, plimsoll.Output, plimsoll.StepEnded)


def properties(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        (RUN, {field.name for field in fields(plimsoll.Run)} | properties(plimsoll.Run) | properties(AnyRun)),
        (RUN, {field.name for field in fields(plimsoll.ProjectRun)} | properties(plimsoll.ProjectRun)),
        (RUN, {field.name for each in (StepResult, Artifact) for field in fields(each)}),
        (VIEW, set(RunView.model_fields)),
        (REST, properties(plimsoll.RunHandle)),
        (REST, {field.name for each in EVENTS for field in fields(each)}),
    ],
    ids=["Run", "ProjectRun", "of a project", "RunView", "RunHandle", "events"],
)
def test_every_field_is_on_the_page(shown: str, names: set[str]) -> None:
    assert names <= set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", shown))))
