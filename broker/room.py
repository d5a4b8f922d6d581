"""How many bytes of answers one run holds in this process, from their first byte until they were handed on.

A run may have many calls under way, and decides how large their answers are and when it takes them. So it has so much room:
what goes beyond it waits until there is room again, one answer apart, which is read to its end whatever there is. That one
is what the others wait for, and so none waits for ever.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from plimsoll.contract.grants import BACK_BYTES

ROOM_BYTES: Final = 2 * BACK_BYTES


class Held:
    """One answer's part of the room."""

    __slots__ = ("_goes_beyond", "_owned", "_room", "size")

    def __init__(self, room: "Room", owned: AsyncExitStack) -> None:
        """Nothing yet."""
        self.size = 0
        self._goes_beyond = False
        self._room, self._owned = room, owned

    async def take(self, size: int) -> None:
        """So many bytes more, once there is room for them or this is the one that needs none."""
        if self._room.left < size and not self._goes_beyond:
            await self._owned.enter_async_context(self._room.turn)
            self._goes_beyond = True
        self._count(size)

    def becomes(self, size: int) -> None:
        """It is so many bytes now, in the form in which it is handed on."""
        self._count(size - self.size)

    def _count(self, size: int) -> None:
        self.size += size
        self._room.left -= size


class Room:
    """One run's."""

    def __init__(self, size: int = ROOM_BYTES) -> None:
        """All of it is left."""
        self.left = size
        self.turn = asyncio.Lock()
        """Held by the answer that needs no room."""

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[Held]:
        """For one answer; at the end of the block it is here no more."""
        async with AsyncExitStack() as owned:
            held = Held(self, owned)
            try:
                yield held
            finally:
                held.becomes(0)
