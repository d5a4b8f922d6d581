"""The sandboxes a client has been told of. An instance never repeats, so a second answer with it is an old one."""

import threading

REMEMBERED = 100_000
"""Older ones are forgotten first; the times in an answer already refuse what is older than the clock skew."""


class Seen:
    """Instances by name, in the order they came. Safe to use from several threads."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._names: dict[str, None] = {}
        self._lock = threading.Lock()

    def add(self, instance: str) -> bool:
        """Remember `instance`; whether it is new."""
        with self._lock:
            if instance in self._names:
                return False
            self._names[instance] = None
            if len(self._names) > self._limit:
                del self._names[next(iter(self._names))]
            return True
