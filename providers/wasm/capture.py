"""What a run printed, within its cap.

Pure bookkeeping: the head of each stream is kept to the byte, what follows is counted, and a stream that goes on for
`flood_factor` times its cap is a flood. Every delivery costs at least `LEAST_CHARGE`, so empty ones end too (S11).

A program that is watched is looked at while it still fills its buffer: what is taken ahead is kept as it was then, and the
delivery of that buffer later brings only what follows it. Only deliveries are charged and counted as cut, so a program ends
the same way whether it is watched or not.
"""

from __future__ import annotations

from typing import Final

LEAST_CHARGE: Final = 64
LOOK_NS: Final = 20_000_000
"""How far apart the looks at a watched program are."""


class Stream:
    """One output stream of one run."""

    __slots__ = ("_cap", "_charged", "_flood_at", "_kept", "ahead", "truncated")

    def __init__(self, cap: int, flood_factor: int) -> None:
        self._cap = cap
        self._flood_at = cap * flood_factor
        self._kept = bytearray()
        self._charged = 0
        self.ahead = 0
        """How many bytes of the next delivery were taken already."""
        self.truncated = False

    @property
    def kept(self) -> bytes:
        return bytes(self._kept)

    @property
    def full(self) -> bool:
        return len(self._kept) >= self._cap

    @property
    def flooded(self) -> bool:
        return self._charged > self._flood_at

    def room_for(self, length: int) -> int:
        """How many bytes of a delivery of `length` are wanted: those after `ahead`, up to the cap."""
        return min(max(0, length - self.ahead), self._cap - len(self._kept))

    def take_ahead(self, part: bytes) -> None:
        """Keep `part` (at most `room_for`) of a delivery that is still to come."""
        self._kept += part
        self.ahead += len(part)

    def add(self, head: bytes, length: int, *, charge: int | None = None) -> None:
        """Take a delivery of `length` bytes of which `head` (at most `room_for(length)`) is kept, beside what came ahead."""
        self._kept += head
        self._charged += length if charge is None else max(length, charge)
        self.truncated = self.truncated or length > len(head) + self.ahead
        self.ahead = 0
