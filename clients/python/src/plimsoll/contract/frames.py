"""Length-prefixed frames between our own processes: `u32 total | u32 header length | header JSON | body bytes`.

Integers are big-endian; `total` counts everything after itself. A length is checked against the bound before
anything is allocated for it, on both sides. Pure: bytes in, frames out.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any

_LENGTHS = struct.Struct(">II")

MAX_FRAME = 24 * 1024 * 1024
"""Default bound of one frame, bytes: the largest request body plus its envelope."""

Frame = tuple[dict[str, Any], bytes]


class FrameError(Exception):
    """The peer broke the framing; nothing after it can be trusted."""


def encode(header: Mapping[str, Any], body: bytes = b"", *, limit: int = MAX_FRAME) -> bytes:
    """One frame. Raises FrameError when it would be larger than `limit` bytes."""
    head = json.dumps(header, separators=(",", ":"), ensure_ascii=True).encode()
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
        self._buffer += data
        while (frame := self._take()) is not None:
            yield frame

    def _take(self) -> Frame | None:
        if len(self._buffer) < _LENGTHS.size:
            return None
        total, head_length = _LENGTHS.unpack_from(self._buffer)
        if total > self._limit or head_length + 4 > total:
            raise FrameError("frame length out of bounds")
        if len(self._buffer) < 4 + total:
            return None
        head = bytes(self._buffer[8 : 8 + head_length])
        body = bytes(self._buffer[8 + head_length : 4 + total])
        del self._buffer[: 4 + total]
        return _header(head), body


def _header(head: bytes) -> dict[str, Any]:
    try:
        header = json.loads(head)
    except ValueError as error:
        raise FrameError("frame header is not JSON") from error
    if not isinstance(header, dict):
        raise FrameError("frame header is not an object")
    return header
