"""What is kept of a run's calls: counts and metadata, bounded.

There is no field for a path, a query, a body or a credential. To see that a run reads the same again, digests of what it read
are held beside the trace, under a key of the run's own; only whether two were equal is ever told.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Final

from plimsoll.contract.grants import CallCode

ENTRIES: Final = 1_000
_DIGEST_BYTES: Final = 16
_READING: Final = frozenset({"GET", "HEAD"})
_FRESH: Final = range(200, 300)
"""An answer of another status, such as 304, brings nothing that a program could have kept."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One call that went upstream. `route` is the profile's text; `status` is 0 when there was no answer."""

    route: str
    method: str
    status: int
    delivered: bool
    bytes_back: int
    ms: int
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """One run's calls, in the order of their ends. `left_out` are the entries beyond the bound; the counts cover all.

    `failed` counts the calls that the guest got no answer to, by code: what was denied or shed never went upstream.
    """

    entries: tuple[Entry, ...]
    left_out: int
    sent: int
    delivered: int
    bytes_out: int
    bytes_back: int
    probes: int
    failed: tuple[tuple[CallCode, int], ...]


class _Read:
    """What a run has read since its latest write. It can be asked about equality alone."""

    __slots__ = ("_key", "_seen")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._seen: set[bytes] = set()

    def again(self, entry: Entry, target: str) -> bool:
        """Whether this call brought what an earlier one had brought."""
        if entry.method not in _READING:
            self._seen.clear()  # whether or not it was answered, what is read next may be other
        if entry.method != "GET" or not entry.delivered or entry.status not in _FRESH:
            return False
        digest = hashlib.blake2b(target.encode(), key=self._key, digest_size=_DIGEST_BYTES).digest()
        known = digest in self._seen
        self._seen.add(digest)
        return known


class Tracer:
    """Collects a run's trace."""

    __slots__ = (
        "_bytes_back",
        "_bytes_out",
        "_delivered",
        "_entries",
        "_failed",
        "_probes",
        "_read",
        "_sent",
    )

    def __init__(self, key: bytes) -> None:
        """Nothing happened yet. `key`, up to 64 random bytes, is this run's alone."""
        self._entries: list[Entry] = []
        self._read = _Read(key)
        self._sent = self._delivered = self._bytes_out = self._bytes_back = self._probes = 0
        self._failed = dict.fromkeys(CallCode, 0)

    def went(self, entry: Entry, bytes_out: int, target: str) -> None:
        """A call went upstream, to this path and query, and has its end."""
        self._sent += 1
        self._delivered += entry.delivered
        self._bytes_out += bytes_out
        self._bytes_back += entry.bytes_back
        if len(self._entries) < ENTRIES:
            # So no more digests are held than there are entries.
            self._entries.append(replace(entry, repeat=self._read.again(entry, target)))

    def failed(self, code: CallCode) -> None:
        """A call failed."""
        self._failed[code] += 1

    def probed(self) -> None:
        """The health check was looked at."""
        self._probes += 1

    def so_far(self) -> Trace:
        """The trace up to now."""
        failed = tuple((code, count) for code, count in self._failed.items() if count)
        return Trace(
            entries=tuple(self._entries),
            left_out=self._sent - len(self._entries),
            sent=self._sent,
            delivered=self._delivered,
            bytes_out=self._bytes_out,
            bytes_back=self._bytes_back,
            probes=self._probes,
            failed=failed,
        )
