"""Whether the file system under the database still has room; looked at often, asked of the system rarely."""

import time
from collections.abc import Callable

MIN_FREE = 0.05
"""Under this share of free space every run is refused: the next commit may fail."""
_LOOK_EVERY_S = 2.0


class DiskWatch:
    """Remembers the answer for two seconds. `free` gives a share from 0 to 1, None where there is no such disk."""

    def __init__(self, free: Callable[[], float | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._free, self._clock = free, clock
        self._looked_s = float("-inf")
        self._full = False

    def full(self) -> bool:
        """Whether less than 5 % is free."""
        now = self._clock()
        if now - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s = now
            share = self._free()
            self._full = share is not None and share < MIN_FREE
        return self._full
