"""Frames between host and runner: bounded, and whole whatever the pieces they arrive in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.wasm.protocol import (
    ENDINGS,
    HEADER,
    MOST_TO_HOST,
    Kind,
    ProtocolError,
    Reader,
    frame,
    pieces_bytes,
    pieces_of,
)
from providers.wasm.vm import Ending

frames = st.lists(
    st.tuples(st.sampled_from(list(Kind)), st.integers(0, 2**64 - 1), st.binary(max_size=200)), max_size=6
)


@given(frames, st.lists(st.integers(1, 100), min_size=1, max_size=20))
def test_frames_survive_any_cutting(sent: list[tuple[Kind, int, bytes]], cuts: list[int]) -> None:
    stream = b"".join(frame(*each) for each in sent)
    reader, got, at, turn = Reader(), [], 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        got += list(reader.feed(stream[at : at + size]))
        at, turn = at + size, turn + 1
    assert got == sent


def test_a_length_over_the_bound_is_refused_before_its_bytes_come() -> None:
    with pytest.raises(ProtocolError):
        list(Reader().feed(HEADER.pack(MOST_TO_HOST + 1, Kind.OUT, 1)))


def test_a_whole_frame_over_the_bound_is_refused_too() -> None:
    with pytest.raises(ProtocolError):
        list(Reader(most=10).feed(frame(Kind.OUT, 1, b"x" * 11)))


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(min_size=1, max_size=50)), max_size=8))
def test_pieces_survive_as_one_of_each_stream(pieces: list[tuple[int, bytes]]) -> None:
    got = list(pieces_of(memoryview(pieces_bytes(pieces))))
    streams = {stream: b"".join(data for each, data in pieces if each == stream) for stream in (1, 2)}
    assert got == [(stream, data) for stream, data in streams.items() if data]


@pytest.mark.parametrize("order", [(1, 1), (2, 2), (2, 1), (1, 2, 1)])
def test_more_than_one_piece_of_a_stream_is_no_frame_of_ours(order: tuple[int, ...]) -> None:
    payload = b"".join(pieces_bytes([(stream, b"x")]) for stream in order)
    with pytest.raises(ProtocolError):
        list(pieces_of(memoryview(payload)))


@given(st.binary(max_size=100))
def test_any_bytes_are_pieces_or_a_protocol_error(data: bytes) -> None:
    try:
        pieces = list(pieces_of(memoryview(data)))
    except ProtocolError:
        return
    assert pieces_bytes(pieces) == data


def test_the_endings_are_the_engines() -> None:
    assert list(ENDINGS) == [each.value for each in Ending]
