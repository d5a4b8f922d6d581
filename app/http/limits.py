"""Limits of a listener as one value, so that a test can use short ones."""

from dataclasses import dataclass

from plimsoll.contract import bounds

KIB = bounds.KIB


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
    keep_alive_s: float = 75.0
    """Longer than clients keep idle connections, so that we rarely close one under a request just sent."""
    stall_s: float = 10.0
    """A caller that takes none of its answer for this long is cut."""
    drain_s: float = 1.0
    drain_bytes: int = 1024 * KIB
    """After an early answer this much, for `drain_s`, is read and dropped, so that the answer is not lost to a reset."""


DEFAULTS = ListenerLimits()
