"""Length-prefixed frames between our own processes: `u32 total | u32 header length | header JSON | body bytes`.

Integers are big-endian; `total` counts everything after itself. A length is checked against the bound before
anything is allocated for it, on both sides. Pure: bytes in, frames out.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any

_LENGTHS = struct.Struct(">II")
# Made once: `json.dumps` and `json.loads` look at their options again for every frame.
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode
_decode = json.JSONDecoder().decode

MAX_FRAME = 24 * 1024 * 1024
"""Default bound of one frame, bytes: the largest request body plus its envelope."""

Frame = tuple[dict[str, Any], bytes]


class FrameError(Exception):
    """The peer broke the framing; nothing after it can be trusted."""


def encode(header: Mapping[str, Any], body: bytes = b"", *, limit: int = MAX_FRAME) -> bytes:
    """One frame. Raises FrameError when it would be larger than `limit` bytes."""
    head = _encode(header).encode()
    total = 4 + len(head) + len(body)
    if total > limit:
        raise FrameError(f"frame of {total} bytes is over the bound of {limit}")
    return _LENGTHS.pack(total, len(head)) + head + body


class Decoder:
    """Feeds on bytes as they arrive and gives whole frames; owns at most one frame's worth of buffer."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        """Refuse any frame over `limit` bytes."""
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Frames completed by `data`, in order. Raises FrameError on a bad length or header."""
        if not self._buffer and (bounds := self._bounds(data)) and bounds[1] == len(data):
            yield _frame(data, *bounds)  # the usual case, without copying: one whole frame
            return
        self._buffer += data
        while bounds := self._bounds(self._buffer):
            frame = _frame(self._buffer, *bounds)
            del self._buffer[: bounds[1]]
            yield frame

    def _bounds(self, data: bytes | bytearray) -> tuple[int, int] | None:
        """Where the header and the body of the first frame end, once all of it is there."""
        if len(data) < _LENGTHS.size:
            return None
        total, head_length = _LENGTHS.unpack_from(data)
        if total > self._limit or head_length + 4 > total:
            raise FrameError("frame length out of bounds")
        return (_LENGTHS.size + head_length, 4 + total) if len(data) >= 4 + total else None


def _frame(data: bytes | bytearray, head_end: int, end: int) -> Frame:
    return _header(data[_LENGTHS.size : head_end]), bytes(data[head_end:end])


def _header(head: bytes | bytearray) -> dict[str, Any]:
    try:
        header = _decode(head.decode())
    except ValueError as error:
        raise FrameError("frame header is not JSON") from error
    if not isinstance(header, dict):
        raise FrameError("frame header is not an object")
    return header
