"""What a run printed, within its cap.

Pure bookkeeping: the head of each stream is kept to the byte, what follows is counted, and a stream that goes on for
`flood_factor` times its cap is a flood. Every delivery costs at least `LEAST_CHARGE`, so empty ones end too (S11).
"""

from __future__ import annotations

from typing import Final

LEAST_CHARGE: Final = 64


class Stream:
    """One output stream of one run."""

    __slots__ = ("_cap", "_charged", "_flood_at", "_kept", "truncated")

    def __init__(self, cap: int, flood_factor: int) -> None:
        self._cap = cap
        self._flood_at = cap * flood_factor
        self._kept = bytearray()
        self._charged = 0
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
        """How many bytes of a delivery of `length` are wanted: its head, up to the cap."""
        return min(length, self._cap - len(self._kept))

    def add(self, head: bytes, length: int, *, charge: int | None = None) -> None:
        """Take a delivery of `length` bytes of which `head` (at most `room_for(length)`) is kept."""
        self._kept += head
        self._charged += length if charge is None else max(length, charge)
        self.truncated = self.truncated or length > len(head)
