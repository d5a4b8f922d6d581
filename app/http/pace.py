"""How often strangers are heard: turns in time for requests that have no caller, of one address and of all together.

Nothing is refused and nobody sleeps here: a turn is a moment, and whoever asks waits for it as it likes.
"""

from app.http.limits import ListenerLimits

_MOST_ADDRESSES = 10_000


class Turns:
    """`rate` turns a second; after a rest, `burst` at once."""

    __slots__ = ("_ahead_s", "_next", "_step_s")

    def __init__(self, rate: float, burst: float) -> None:
        self._step_s, self._ahead_s = 1 / rate, burst / rate
        self._next = float("-inf")

    def take(self, now: float) -> float:
        """The moment of the next turn, `now` or later; it is nobody else's."""
        turn = max(self._next, now - self._ahead_s + self._step_s)
        self._next = turn + self._step_s
        return max(turn, now)

    def give_back(self) -> None:
        """One turn was not needed."""
        self._next -= self._step_s


class Pace:
    """The turns of one listener. Times are those of the event loop."""

    def __init__(self, limits: ListenerLimits) -> None:
        self._rate, self._burst = limits.strangers_per_s, limits.per_address
        self._all = Turns(limits.all_strangers_per_s, limits.all_strangers_per_s)
        self._addresses: dict[str, Turns] = {}

    def turn(self, address: str | None, now: float) -> float:
        """When a header from `address` may be read that may be a stranger's. None: an address that is not counted."""
        if address is None:
            return now
        turns = self._addresses.pop(address, None) or Turns(self._rate, self._burst)
        self._addresses[address] = turns  # last used, last in order
        if len(self._addresses) > _MOST_ADDRESSES:
            del self._addresses[next(iter(self._addresses))]
        return turns.take(now)

    def was_caller(self, address: str | None) -> None:
        """The request that took a turn had a caller, whose own rates count it."""
        if address is not None and (turns := self._addresses.get(address)):
            turns.give_back()

    def was_stranger(self, now: float) -> float:
        """Count one among all strangers; the moment before which its connection is not read again."""
        return self._all.take(now)
