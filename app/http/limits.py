"""Limits of a listener, and of what a body may hold, as values, so that a test can use small ones."""

from collections.abc import Collection
from dataclasses import dataclass

from plimsoll.contract import bounds
from plimsoll.contract.requests import Kind

KIB = bounds.KIB
SNIPPET_BODY_BYTES = 2048 * KIB
"""Six bytes for each one of the longest snippet, were every character of it escaped, and slack."""
_SNIPPETS = frozenset({Kind.JAVASCRIPT, Kind.PYTHON, Kind.CELL})
_FEW, _MANY = 2**12, 2**18


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What one body may hold. Reading it holds up everybody else, so this is never more than some kind served here can need."""

    size: int = bounds.BODY_BYTES
    """Bytes."""
    values: int = _MANY
    """Strings, and objects and lists together. A table of 100,000 rows stays below; more would grow to gigabytes once built."""
    commas: int = bounds.MODULE_ROWS * bounds.MODULE_WIDTH + _MANY
    """So many numbers, or members, or items."""
    literals: int = _FEW
    """The words true, false and null."""


EVERY_KIND = BodyLimits()


def body_limits(kinds: Collection[Kind]) -> BodyLimits:
    """What a body may hold where only `kinds` can be served."""
    size = SNIPPET_BODY_BYTES if _SNIPPETS.issuperset(kinds) else bounds.BODY_BYTES
    return EVERY_KIND if Kind.MODULE in kinds else BodyLimits(size, _FEW, _FEW)


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """How much and how long a stranger may make one listener wait and hold. Seconds are wall clock, sizes bytes."""

    head_s: float = 10.0
    """From the connection (or, on a kept connection, the first byte) to the blank line after the header."""
    head_bytes: int = 16 * KIB
    head_fields: int = 64
    body_s: float = 30.0
    body_grace_s: float = 5.0
    """A body is not measured against `body_rate` before this age."""
    body_rate: int = KIB
    """Bytes per second, on average, while we are willing to read."""
    body_bytes: int = bounds.BODY_BYTES
    body_chunks: int = 4096
    """Chunks of a chunked body. Each costs us microseconds, so a body of one-byte chunks would stop the others."""
    connections: int = 4096
    per_address: int = 256
    turned_away: int = 256
    """Connections beyond the caps that are still told so; those beyond this number are closed without a word."""
    strangers_per_s: float = 50.0
    """Requests without a caller that are heard from one address; at first as many at once as it may have connections."""
    all_strangers_per_s: float = 500.0
    """The same for all of them, on connections that they keep. Trusted proxies count here only."""
    keep_alive_s: float = 75.0
    """Longer than clients keep idle connections, so that we rarely close one under a request just sent."""
    stall_s: float = 10.0
    """A caller that takes none of its answer for this long is cut."""
    drain_s: float = 1.0
    drain_bytes: int = 1024 * KIB
    """After an early answer this much, for `drain_s`, is read and dropped, so that the answer is not lost to a reset."""


DEFAULTS = ListenerLimits()
