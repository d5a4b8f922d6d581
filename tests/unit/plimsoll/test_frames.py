"""Frames come out whole and in order, however the bytes were cut; a bad length or header is said at once."""

import pytest

from plimsoll.contract.frames import Decoder, Frame, FrameError, encode

FRAMES: list[Frame] = [
    ({"op": "a", "n": 1}, b""),
    ({}, b"body"),
    ({"word": "\u00e4\ud800"}, b"\x00" * 70_000),
]
BYTES = b"".join(encode(*frame) for frame in FRAMES)


def fed(*parts: bytes) -> list[Frame]:
    decoder = Decoder()
    return [frame for part in parts for frame in decoder.feed(part)]


def test_each_frame_in_one_piece() -> None:
    assert fed(*(encode(*frame) for frame in FRAMES)) == FRAMES


def test_all_frames_in_one_piece() -> None:
    assert fed(BYTES) == FRAMES


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 30, len(BYTES) - 1])
def test_frames_in_two_pieces(cut: int) -> None:
    assert fed(BYTES[:cut], BYTES[cut:]) == FRAMES


def test_frames_byte_by_byte() -> None:
    few = b"".join(encode(*frame) for frame in FRAMES[:2])
    assert fed(*(few[at : at + 1] for at in range(len(few)))) == FRAMES[:2]


def test_a_whole_frame_after_a_part_of_another() -> None:
    first, second = encode({"n": 1}), encode({"n": 2})
    assert fed(first[:5], first[5:] + second, second) == [({"n": 1}, b""), ({"n": 2}, b""), ({"n": 2}, b"")]


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff\x00\x00\x00\x02{}",  # longer than the bound
        b"\x00\x00\x00\x05\x00\x00\x00\x02{}",  # a header longer than the frame
        b"\x00\x00\x00\x06\x00\x00\x00\x02[]",  # no object
        b"\x00\x00\x00\x06\x00\x00\x00\x02{]",  # no JSON
        b"\x00\x00\x00\x07\x00\x00\x00\x03{\xff}",  # no UTF-8
        b"\x00\x00\x00\x08\x00\x00\x00\x04{\x00}\x00",  # JSON in another encoding
    ],
)
@pytest.mark.parametrize("before", [b"", encode({"n": 1})])
def test_nonsense_is_refused(data: bytes, before: bytes) -> None:
    with pytest.raises(FrameError):
        fed(before + data)


def test_a_frame_over_the_bound_is_not_made() -> None:
    with pytest.raises(FrameError):
        encode({}, b"x" * 100, limit=100)
