"""Events hold whole characters and exact bytes, whatever the chunks are cut into."""

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from app.api.stream import Cutter, frame, incomplete


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
