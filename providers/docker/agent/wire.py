"""The frames of plimsoll.contract.frames once more: the image holds nothing of ours but this agent. A test compares both."""

import json
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any

MAX_FRAME = 1 << 20
"""Most bytes of one frame, its length field apart, in both directions."""

_LENGTHS = struct.Struct(">II")

Frame = tuple[dict[str, Any], bytes]


class WireError(Exception):
    """The peer broke the framing."""


def encode(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """One frame."""
    head = json.dumps(header, separators=(",", ":"), ensure_ascii=True).encode()
    total = 4 + len(head) + len(body)
    if total > MAX_FRAME:
        raise WireError(f"frame of {total} bytes")
    return _LENGTHS.pack(total, len(head)) + head + body


class Decoder:
    """Bytes in, frames out; a length is checked before anything is kept for it."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Frames completed by `data`, in order."""
        self._buffer += data
        while len(self._buffer) >= _LENGTHS.size:
            total, head_length = _LENGTHS.unpack_from(self._buffer)
            if total > MAX_FRAME or head_length + 4 > total:
                raise WireError("frame length out of bounds")
            if len(self._buffer) < 4 + total:
                return
            frame = bytes(self._buffer[8 : 4 + total])
            del self._buffer[: 4 + total]
            yield _header(frame[:head_length]), frame[head_length:]


def _header(head: bytes) -> dict[str, Any]:
    try:
        header = json.loads(head)
    except (ValueError, RecursionError) as error:
        raise WireError("frame header is not JSON") from error
    if not isinstance(header, dict):
        raise WireError("frame header is not an object")
    return header


def send(descriptor: int, data: bytes) -> None:
    """Write all of it. A slow host slows the guest down, which is all it does."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
