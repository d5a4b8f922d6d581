"""How many bytes of request bodies are held in memory, for one caller and for all; counted as they come, never waited for."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from plimsoll.contract import bounds
from plimsoll.contract.refusals import Code, Reason, Refusal

NO_ROOM = Refusal(
    Code.CAPACITY, "Too many bytes of requests are held here right now.", Reason.CAPACITY, retry_after_s=1
)
Take = Callable[[int], bool]
"""Count so many bytes more; False, with nothing counted, when there is no room for them."""


class Budget:
    """Bytes of bodies from their arrival until they were read."""

    def __init__(self, per_caller: int = 32 * bounds.MIB, total: int = 128 * bounds.MIB) -> None:
        self._per_caller, self._total = per_caller, total
        self._held: Counter[str] = Counter()
        self._sum = 0

    @property
    def held(self) -> int:
        """Bytes counted now."""
        return self._sum

    @contextmanager
    def open(self, caller_id: str) -> Iterator[Take]:
        """Count one body of a caller; all of it is given back at the end of the block, however that comes."""
        mine = 0

        def take(size: int) -> bool:
            nonlocal mine
            if self._held[caller_id] + size > self._per_caller or self._sum + size > self._total:
                return False
            mine += size
            self._count(caller_id, size)
            return True

        try:
            yield take
        finally:
            self._count(caller_id, -mine)

    def _count(self, caller_id: str, size: int) -> None:
        self._sum += size
        self._held[caller_id] += size
        if not self._held[caller_id]:
            del self._held[caller_id]
