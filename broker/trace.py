"""What is kept of a run's calls: counts and metadata, bounded.

There is no field for a path, a query, a body or a credential.
"""

from dataclasses import dataclass
from typing import Final

from plimsoll.contract.grants import CallCode

ENTRIES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One call that went upstream. `route` is the profile's text; `status` is 0 when there was no answer."""

    route: str
    method: str
    status: int
    delivered: bool
    bytes_back: int
    ms: int


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


class Tracer:
    """Collects a run's trace."""

    __slots__ = ("_bytes_back", "_bytes_out", "_delivered", "_entries", "_failed", "_probes", "_sent")

    def __init__(self) -> None:
        """Nothing happened yet."""
        self._entries: list[Entry] = []
        self._sent = self._delivered = self._bytes_out = self._bytes_back = self._probes = 0
        self._failed = dict.fromkeys(CallCode, 0)

    def went(self, entry: Entry, bytes_out: int) -> None:
        """A call went upstream and has its end."""
        self._sent += 1
        self._delivered += entry.delivered
        self._bytes_out += bytes_out
        self._bytes_back += entry.bytes_back
        if len(self._entries) < ENTRIES:
            self._entries.append(entry)

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
