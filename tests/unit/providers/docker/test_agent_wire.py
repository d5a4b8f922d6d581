"""The agent's own codec agrees with the contract's, byte for byte and in what it refuses."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.contract import frames
from providers.docker.agent import wire
from providers.docker.frames import MAX_FRAME

HEADERS = st.dictionaries(
    st.text(max_size=8),
    st.one_of(st.text(max_size=20), st.integers(), st.booleans(), st.none(), st.lists(st.text(max_size=3))),
    max_size=4,
)


@given(HEADERS, st.binary(max_size=200))
def test_both_write_the_same_bytes(header: dict[str, Any], body: bytes) -> None:
    assert wire.encode(header, body) == frames.encode(header, body, limit=MAX_FRAME)


@given(st.lists(st.tuples(HEADERS, st.binary(max_size=50)), max_size=5), st.integers(1, 40))
def test_each_reads_the_other_in_pieces_of_any_size(
    sent: list[tuple[dict[str, Any], bytes]], size: int
) -> None:
    data = b"".join(wire.encode(header, body) for header, body in sent)
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    ours, theirs = wire.Decoder(), frames.Decoder(MAX_FRAME)
    assert [frame for piece in pieces for frame in ours.feed(piece)] == sent
    assert [frame for piece in pieces for frame in theirs.feed(piece)] == sent


@given(st.binary(max_size=80))
def test_both_refuse_the_same_bytes(data: bytes) -> None:
    assert _read(wire.Decoder(), data, wire.WireError) == _read(
        frames.Decoder(MAX_FRAME), data, frames.FrameError
    )


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">II", MAX_FRAME + 1, 2),
        struct.pack(">II", 5, 2),
        struct.pack(">II", 6, 2) + b"[]",
        struct.pack(">II", 8, 4) + b"nope",
        struct.pack(">II", 4 + 200_000, 200_000) + b"[" * 200_000,
    ],
    ids=["too long", "header longer than the frame", "not an object", "not JSON", "too deep"],
)
def test_the_agent_refuses_what_breaks_the_framing(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        list(wire.Decoder().feed(data))


def test_both_have_the_same_bound() -> None:
    assert wire.MAX_FRAME == MAX_FRAME
    room = MAX_FRAME - 4 - len(b"{}")
    assert len(wire.encode({}, b"x" * room)) == MAX_FRAME + 4
    with pytest.raises(wire.WireError):
        wire.encode({}, b"x" * (room + 1))


def _read(decoder: Any, data: bytes, refusal: type[Exception]) -> object:
    try:
        return list(decoder.feed(data))
    except refusal:
        return "refused"
