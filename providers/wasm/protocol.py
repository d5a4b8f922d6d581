"""Frames between the host and one runner: `u32 length of the payload | u8 kind | u64 run number | payload`, big-endian.

    host -> runner   RUN    u64 deadline (monotonic ns) | u32 memory bytes | u32 output cap | u8 flags (1 may call) | source
                     WATCH  the same, for a run whose output is wanted while it runs
                     CANCEL nothing: end that run; without meaning when it is over
                     REPLY  the answer to its call; nothing more comes for a run after its CANCEL
    runner -> host   HELLO  JSON: what it found of its own confinement
                     OUT    pieces, at most one of each stream, in order: u8 stream (1, 2) | u32 length, not 0 | bytes
                     CALL   a message of the guest's, not empty; the runner then waits for the REPLY
                     END    u8 ending | u8 exit code | u8 flags (1 stdout cut, 2 stderr cut) | pieces

Small outputs come inside END, so a short run is one frame there and one back. No JSON and no objects on that path. Pure.
The host believes nothing here that it can decide itself: see `handle.py`.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from plimsoll.contract.grants import BACK_BYTES, MESSAGE_BYTES

HEADER: Final = struct.Struct(">IBQ")
RUN: Final = struct.Struct(">QIIB")
END: Final = struct.Struct(">BBB")
PIECE: Final = struct.Struct(">BI")

MOST_TO_HOST: Final = 256 * 1024
MOST_TO_RUNNER: Final = 1024 * 1024
MOST_CALL: Final = MESSAGE_BYTES
MOST_REPLY: Final = 4 * BACK_BYTES
MOST_CALLS: Final = 100_000
"""In a run, of any host calls, on both sides."""
MAY_CALL: Final = 1
LEAST_OUT: Final = 12 * 1024
"""A runner sends output on from here, and no OUT frame has a smaller payload, except one for each look at a watched run,
which are `capture.LOOK_NS` apart, and one before each call: so one run can only send so many."""

ENDINGS: Final = ("finished", "deadline", "memory", "flood", "stack", "host_calls", "cancelled", "trap")
"""By number in END. Append only; the words are `vm.Ending`'s."""

Piece = tuple[int, bytes]


class Kind(IntEnum):
    """What a frame is."""

    HELLO = 1
    RUN = 2
    OUT = 3
    END = 4
    WATCH = 5
    CANCEL = 6
    CALL = 7
    REPLY = 8


class ProtocolError(Exception):
    """The runner broke the framing: it is not to be believed any more."""


def frame(kind: Kind, number: int, payload: bytes) -> bytes:
    """One frame."""
    return HEADER.pack(len(payload), kind, number) + payload


def pieces_bytes(pieces: list[Piece]) -> bytes:
    """Pieces of output as part of a payload: however many there are, one of each stream."""
    return b"".join(PIECE.pack(stream, len(data)) + data for stream, data in _joined(pieces))


def _joined(pieces: list[Piece]) -> list[Piece]:
    if len(pieces) <= 1:
        return pieces
    of_each = [(stream, b"".join(data for number, data in pieces if number == stream)) for stream in (1, 2)]
    return [piece for piece in of_each if piece[1]]


def pieces_of(payload: memoryview) -> Iterator[Piece]:
    """The pieces in a payload. Raises ProtocolError."""
    at = last = 0
    while at < len(payload):
        if at + PIECE.size > len(payload):
            raise ProtocolError("piece")
        stream, length = PIECE.unpack_from(payload, at)
        at += PIECE.size
        if not last < stream <= 2 or not length or at + length > len(payload):  # noqa: PLR2004  # there are two
            raise ProtocolError("piece")
        last = stream
        yield stream, bytes(payload[at : at + length])
        at += length


class Reader:
    """Frames from bytes as they arrive; a length is checked before anything is kept for it."""

    def __init__(self, most: int = MOST_TO_HOST, most_call: int = MOST_CALL) -> None:
        """Refuse any payload over `most` bytes, and any message of a guest's over `most_call`."""
        self._most = most
        self._most_call = most_call
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """(kind, run number, payload) of every frame that is complete now. Raises ProtocolError."""
        if not self._buffer and len(data) >= HEADER.size:  # the usual case, without copying: one whole frame
            length, kind, number = HEADER.unpack_from(data)
            if len(data) == HEADER.size + length <= HEADER.size + self._most_of(kind):
                yield kind, number, data[HEADER.size :]
                return
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            length, kind, number = HEADER.unpack_from(self._buffer)
            if length > self._most_of(kind):
                raise ProtocolError("length")
            end = HEADER.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[HEADER.size : end])
            del self._buffer[:end]
            yield kind, number, payload

    def _most_of(self, kind: int) -> int:
        return self._most_call if kind == Kind.CALL else self._most
