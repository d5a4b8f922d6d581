"""Notices a sandbox that stands still at its memory limit, which some runtimes neither end nor let go on.

A kernel that kills at the limit usually ends the run. Two cases are left, and both last, look after look:

- memory that cannot be taken back stays at the limit, so nothing that needs more of it can go on
- under gVisor the kernel killed a process that only lends the guest its address space: gVisor lives, and the guest stands still
  for ever, some way below the limit
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

LOOK_S: Final = 0.1
"""A sandbox that dies of memory takes its counter along; that takes about this long, so one look sees it in between."""
FULL_S: Final = 1.0
"""How long memory must have been full, at every look, for the run to be out of it."""
MARGIN_BYTES: Final = 1 << 20
"""Less than this below the limit is full: about what a processor takes in advance."""


class Usage(Protocol):
    """What a container holds and may hold; pages that the kernel can take back at once are not held."""

    @property
    def held_bytes(self) -> int: ...

    @property
    def limit_bytes(self) -> int: ...


class Watch:
    """Looks at one container's memory while its run goes on."""

    def __init__(
        self,
        look: Callable[[], Usage],
        crippled: Callable[[], bool],
        *,
        look_s: float = LOOK_S,
        full_s: float = FULL_S,
    ) -> None:
        """Of a container that is gone `look` says that it holds nothing. `crippled`: a kill left one that cannot go on."""
        self._crippled = crippled
        self._look = look
        self._look_s = look_s
        self._full_looks = 0
        self._needed = max(2, round(full_s / look_s))

    @property
    def full(self) -> bool:
        """Whether it is known not to go on, or was full at the last looks, though perhaps not for long enough."""
        return self._full_looks > 1 or self._crippled()

    async def starved(self) -> None:
        """Returns when the run is out of memory."""
        while self._full_looks < self._needed:
            await asyncio.sleep(self._look_s)
            usage = self._look()
            is_full = usage.held_bytes >= usage.limit_bytes - MARGIN_BYTES
            self._full_looks = self._full_looks + 1 if is_full or self._crippled() else 0
