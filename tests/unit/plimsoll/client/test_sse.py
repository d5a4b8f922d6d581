"""Server-sent events, strictly: however they are cut, the same events or the same fault."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.client.errors import MalformedResponse
from plimsoll.client.sse import LINE_BYTES, Event, Parser

ONE = b"event: stdout\ndata: {}\n\n"

names = st.from_regex(r"[a-z][a-z_-]{0,31}", fullmatch=True)
data = st.binary(max_size=60).map(lambda raw: raw.translate(None, b"\r\n"))
comments = data.map(lambda raw: b":" + raw + b"\n\n")
honest = st.builds(lambda name, value: b"event: %b\ndata: %b\n\n" % (name.encode(), value), names, data)
cuts = st.lists(st.integers(0, 2000), max_size=20)


def read(*pieces: bytes, limit: int = LINE_BYTES) -> tuple[list[Event], str]:
    """Every event before the end or the first fault, and how it ended."""
    parser, events = Parser(limit), []
    try:
        for piece in pieces:
            for event in parser.feed(piece):
                events.append(event)  # noqa: PERF402 - what came before a fault counts
    except MalformedResponse as fault:
        return events, str(fault)
    return events, "" if parser.between else "in the middle"


def pieces(whole: bytes, at: list[int]) -> list[bytes]:
    marks = [0, *sorted(min(mark, len(whole)) for mark in at), len(whole)]
    return [whole[start:end] for start, end in pairwise(marks)]


@given(st.lists(st.one_of(honest, comments), max_size=8), cuts)
def test_any_cutting_gives_the_same_events(parts: list[bytes], at: list[int]) -> None:
    whole = b"".join(parts)
    events, end = read(whole)
    assert (events, end) == read(*pieces(whole, at)) == read(*(bytes([byte]) for byte in whole))
    assert end == ""
    assert len(events) == sum(not part.startswith(b":") for part in parts)


@given(st.binary(max_size=200), cuts)
def test_any_cutting_of_anything_gives_the_same_end(noise: bytes, at: list[int]) -> None:
    assert read(ONE + noise, limit=50) == read(*pieces(ONE + noise, at), limit=50)


@given(st.lists(honest, min_size=1, max_size=4), st.data())
def test_bytes_put_anywhere_never_make_one_event_two(parts: list[bytes], draw: st.DataObject) -> None:
    whole = b"".join(parts)
    place = draw.draw(st.integers(0, len(whole)))
    noise = draw.draw(st.binary(min_size=1, max_size=5).filter(lambda raw: b"\n" not in raw))
    events, _ = read(whole[:place] + noise + whole[place:])
    assert len(events) <= len(parts)


def test_the_space_after_the_colon_is_one_at_most() -> None:
    assert read(b"event:a\ndata:  {}\n\n")[0] == [Event("a", b" {}")]


@pytest.mark.parametrize(
    "fault",
    [
        b"event: a\ndata: {}\r\n\r\n",
        b"event: a\ndata: {}\r\n\n",
        b": still running\r\n\n",
        b"event: a\rdata: {}\n\n",
        b"event: a\ndata: {\ndata: }\n\n",
        b"event: a\nevent: b\ndata: {}\n\n",
        b"event: a\n\n",
        b"data: {}\n\n",
        b"event: \ndata: {}\n\n",
        b"event: A\ndata: {}\n\n",
        b"event: \xff\ndata: {}\n\n",
        b"event: " + b"a" * 33 + b"\ndata: {}\n\n",
        b"id: 1\n",
        b"retry: 1\n",
        b"event\n\n",
        b"data\n\n",
        b" event: a\n",
        b"\xef\xbb\xbfevent: a\n",
        b"{}\n",
    ],
)
def test_what_our_service_never_sends_is_malformed(fault: bytes) -> None:
    events, end = read(ONE + fault + ONE)
    assert events == [Event("stdout", b"{}")]
    assert end.startswith("the stream has ")


def test_a_line_may_be_as_long_as_the_limit_and_not_a_byte_longer() -> None:
    rest = LINE_BYTES - len(b"data: ")
    assert read(b"event: a\ndata: " + b"x" * rest + b"\n\n")[1] == ""
    assert "1048576" in read(b"event: a\ndata: " + b"x" * (rest + 1) + b"\n\n")[1]
    assert "1048576" in read(b"event: a\ndata: ", *[b"x" * 65536] * 17)[1]
    assert "1048576" in read(b":" + b"x" * LINE_BYTES)[1]


@pytest.mark.parametrize("cut", range(1, len(ONE)))
def test_a_cut_event_is_seen(cut: int) -> None:
    assert read(ONE + ONE[:cut]) == ([Event("stdout", b"{}")], "in the middle")


def test_a_long_line_in_small_pieces_takes_no_square_of_time() -> None:
    pieces_of_it = [b"event: a\ndata: ", *[b"x" * 10] * 100_000, b"\n\n"]
    assert read(*pieces_of_it)[1] == ""
