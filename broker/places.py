"""Places for requests that are on their way to APIs: so many in this process, shared by callers and by the APIs they call.

A request cannot be called back, and an API may be slow. So nobody gets the last places: a caller may have as many as are free
beside its own, which is half of them while it is alone, and an API likewise. The calls of one run are sure: for so many places
a caller need not leave any free, as long as its API holds less than three quarters. What is free is lent that way, and taken
back as requests end: places go to who waits longest and may have one.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from plimsoll.contract.grants import IN_FLIGHT

PLACES: Final = 256
"""Each request may bring an answer of 4 MiB."""
_QUARTERS_OF_ORIGIN: Final = 3


@dataclass(frozen=True, slots=True)
class Share:
    """Where one run's requests take their places. An async context manager that any number may be inside of."""

    places: "Places"
    caller: str
    origin: str

    async def __aenter__(self) -> None:
        await self.places.take(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.places.give_back(self)


class Places:
    """All places of this process."""

    def __init__(self, total: int = PLACES, sure: int = IN_FLIGHT) -> None:
        """All are free."""
        self.free = total
        self._total, self._sure = total, sure
        self._callers: Counter[str] = Counter()
        self._origins: Counter[str] = Counter()
        # By caller and API, who waited longest first; each has its turn before one has its second.
        self._waiting: OrderedDict[tuple[str, str], deque[asyncio.Future[None]]] = OrderedDict()

    def share(self, caller: str, origin: str) -> Share:
        """For the requests of a run of this caller to this API."""
        return Share(self, caller, origin)

    async def take(self, share: Share) -> None:
        """A place, once there is one for this share."""
        key = (share.caller, share.origin)
        if key not in self._waiting and self._may(*key):
            self._count(*key, 1)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(share)  # it was given in the same moment
            else:
                self._leave(key, turn)
            raise

    def give_back(self, share: Share) -> None:
        """One place is free again, for whoever may have it."""
        self._count(share.caller, share.origin, -1)
        for key in list(self._waiting):
            if not self.free:
                return
            if self._may(*key):
                self._next(key)

    def _may(self, caller: str, origin: str) -> bool:
        has, there = self._callers[caller], self._origins[origin]
        if not self.free or 4 * there >= _QUARTERS_OF_ORIGIN * self._total:
            return False
        return has < self._sure or (has < self.free and there < self.free)

    def _next(self, key: tuple[str, str]) -> None:
        """Give a place to the first who still waits."""
        turns = self._waiting[key]
        self._waiting.move_to_end(key)
        while turns:
            turn = turns.popleft()
            if not turn.done():  # else its asker was cancelled, and has not gone on yet
                self._count(*key, 1)
                turn.set_result(None)
                break
        if not turns:
            del self._waiting[key]

    def _leave(self, key: tuple[str, str], turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(key)
        if turns and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[key]

    def _count(self, caller: str, origin: str, more: int) -> None:
        self.free -= more
        for counter, name in ((self._callers, caller), (self._origins, origin)):
            counter[name] += more
            if not counter[name]:
                del counter[name]
