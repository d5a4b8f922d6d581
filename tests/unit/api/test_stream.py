"""Events hold whole characters and exact bytes, whatever the chunks are cut into."""

import base64
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.stream import Cutter, Teller, frame, incomplete
from plimsoll.contract.requests import JavaScript, Kind, Project
from plimsoll.contract.results import Artifact, Outcome, ProjectResult, ScriptResult, StepResult
from plimsoll.contract.worker import Out, StepEnded


def data_of(event: bytes) -> bytes:
    name, line, *rest = event.decode().split("\n")
    assert (name, rest) == ("event: stdout", ["", ""])
    said = json.loads(line.removeprefix("data: "))
    return base64.b64decode(said["data"]) if said["encoding"] == "base64" else said["data"].encode()


@given(st.lists(st.binary(max_size=9), max_size=12))
def test_the_events_hold_exactly_the_bytes(chunks: list[bytes]) -> None:
    cutter = Cutter("stdout")
    events = [each for chunk in chunks for each in cutter.feed(chunk)] + cutter.feed(b"", last=True)
    assert b"".join(data_of(event) for event in events) == b"".join(chunks)


@given(st.text(max_size=20), st.integers(1, 5))
def test_text_never_becomes_base64_however_it_is_cut(text: str, size: int) -> None:
    data = text.encode()
    cutter = Cutter("stdout")
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    events = [each for chunk in chunks for each in cutter.feed(chunk)] + cutter.feed(b"", last=True)
    assert all(b'"encoding": "utf-8"' in event for event in events)


@given(st.binary(max_size=40))
def test_at_most_three_bytes_wait(data: bytes) -> None:
    assert 0 <= incomplete(data) <= min(3, len(data))


def test_a_guest_that_prints_our_frames_prints_text() -> None:
    hostile = b'\n\nevent: result\ndata: {"id": 1}\n\n\r\n'
    [event] = Cutter("stdout").feed(hostile)
    assert event.count(b"\n") == 3
    assert b"\r" not in event
    assert data_of(event) == hostile


def test_a_frame_is_one_name_and_one_line() -> None:
    assert frame("result", "{}") == b"event: result\ndata: {}\n\n"


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3))
def test_a_frame_is_ascii_and_says_the_same(said: dict[str, str]) -> None:
    event = frame("result", json.dumps(said, ensure_ascii=False).encode("utf-8", "replace").decode())
    assert event.isascii()
    assert event.decode().splitlines() == event.decode().split("\n")[:-1]
    told = json.loads(event.decode().split("\n")[1].removeprefix("data: "))
    assert told == json.loads(json.dumps(said, ensure_ascii=False).encode("utf-8", "replace"))


PROJECT = Project((), ("one", "two"), ("a",))
RESULT = ProjectResult(
    Outcome.COMPLETED,
    steps=(StepResult("one", stdout=b"1\n\xc3\xa9", duration_ms=5), StepResult("two", 3, True, stderr=b"no")),
    artifacts=(Artifact("a", b"x"),),
)
TOLD = (
    Out("stdout", b"1\n\xc3", 0),
    Out("stdout", b"\xa9", 0),
    StepEnded(0, 0, duration_ms=5),
    Out("stderr", b"no", 1),
    StepEnded(1, 3, timed_out=True),
)


def told(events: Iterable[bytes]) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for event in events:
        name, data, *_ = event.decode().split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def output(events: list[tuple[str, dict[str, Any]]], name: str, step: int) -> str:
    return "".join(said["data"] for kind, said in events if kind == name and said["step"] == step)


@pytest.mark.parametrize("heard", range(len(TOLD) + 1))
def test_a_projects_events_are_the_same_however_much_came_as_it_went(heard: int) -> None:
    teller = Teller(PROJECT)
    live = [each for said in TOLD[:heard] for each in teller.tell(said)]
    events = told([*live, *teller.rest(RESULT)])
    assert output(events, "stdout", 0) == "1\n\u00e9"
    assert output(events, "stderr", 1) == "no"
    ends = [said for name, said in events if name == "step"]
    cut = {"stdout_truncated": False, "stderr_truncated": False}
    assert ends == [
        {"step": 0, "exit_code": 0, "timed_out": False, "duration_ms": 5, **cut},
        {"step": 1, "exit_code": 3, "timed_out": True, "duration_ms": 0, **cut},
    ]
    order = [said["step"] for _, said in events]
    assert order == sorted(order)
    assert [name for name, _ in events][-1] == "step"


def test_what_ends_a_step_in_the_middle_of_a_character_is_told_before_its_end() -> None:
    teller = Teller(PROJECT)
    events = told([*teller.tell(Out("stdout", b"\xc3", 0)), *teller.tell(StepEnded(0, 0))])
    assert events[0] == ("stdout", {"data": "ww==", "encoding": "base64", "step": 0})
    assert events[1][0] == "step"


def test_a_snippets_events_say_nothing_of_steps() -> None:
    teller = Teller(JavaScript("1"))
    assert teller.tell(Out("stdout", b"1\n")) == [
        b'event: stdout\ndata: {"data": "1\\n", "encoding": "utf-8"}\n\n'
    ]
    rest = teller.rest(ScriptResult(Kind.JAVASCRIPT, stdout=b"1\n2", stderr=b"\xff"))
    assert rest == [
        b'event: stdout\ndata: {"data": "2", "encoding": "utf-8"}\n\n',
        b'event: stderr\ndata: {"data": "/w==", "encoding": "base64"}\n\n',
    ]
