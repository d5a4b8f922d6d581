"""The sandboxes a client has been told of. An instance never repeats, so a second answer with it is an old one.

Except where an old answer is what was asked for: under an idempotency key, or of an asynchronous run. Such an answer has an
owner, and the same owner may be told of the same instance again.
"""

import threading

REMEMBERED = 100_000
"""Older ones are forgotten first; the times in an answer already refuse what is older than the clock skew."""


class Seen:
    """Instances by name, in the order they came. Safe to use from several threads."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._owners: dict[str, str] = {}
        self._lock = threading.Lock()

    def add(self, instance: str, owner: str = "") -> bool:
        """Remember `instance`; whether it is new, or is this `owner`'s already (nobody is no owner)."""
        with self._lock:
            if instance in self._owners:
                return owner != "" and self._owners[instance] == owner
            self._owners[instance] = owner
            if len(self._owners) > self._limit:
                del self._owners[next(iter(self._owners))]
            return True
