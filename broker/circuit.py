"""When a run leaves its API alone: a state machine that is asked before each call and told of each answer.

The rule book; times are seconds on whatever clock the caller passes in, which never goes back:

1. A 429 is waited out: nothing goes until its Retry-After (1 s if it has none, 30 s at most) is over.
2. So is a 503, but one call a second is elected to look at the health check, if there is one; a healthy answer ends the wait.
3. A later answer can make a wait longer, never shorter; only a healthy look ends it early.
4. When a wait is over, one call goes first. The others wait for its answer, or until it is late.
5. Whatever may not go is shed at once, and told how many seconds to wait.
"""

import email.utils
import math
from dataclasses import dataclass
from typing import Final

TOO_MANY: Final = 429
UNAVAILABLE: Final = 503
DEFAULT_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 30.0
PROBE_EVERY_S: Final = 1.0
LATE_S: Final = 30.0
"""A call or a look that has not ended by then counts as lost, and another is elected."""
_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class Go:
    """The call may go. With `first`, the number of its election, the others wait for its end."""

    first: int = 0


@dataclass(frozen=True, slots=True)
class Probe:
    """The call is elected: look at the health check, say `probed`, and ask again if it was healthy."""


@dataclass(frozen=True, slots=True)
class Shed:
    """The call may not go for so many seconds."""

    retry_after_s: int


class Circuit:
    """One run's."""

    __slots__ = (
        "_down_until",
        "_elections",
        "_first",
        "_first_since",
        "_has_probe",
        "_last_probe",
        "_probing",
        "_recovering",
        "_throttled_until",
    )

    def __init__(self, *, has_probe: bool) -> None:
        """Closed: calls go. `has_probe`: there is a health check to look at."""
        self._has_probe = has_probe
        self._throttled_until = -math.inf
        self._down_until = -math.inf
        self._recovering = False
        self._elections = 0
        self._first = 0
        self._first_since = -math.inf
        self._last_probe = -math.inf
        self._probing = False

    def ask(self, now: float) -> Go | Probe | Shed:
        """Whether a call may go now."""
        if now < self._throttled_until:
            return self._shed(now)
        if now < self._down_until:
            return self._elect(now)
        if not self._recovering:
            return Go()
        if now < self._first_since + LATE_S:
            return Shed(1)
        self._elections += 1
        self._first, self._first_since = self._elections, now
        return Go(first=self._first)

    def answered(self, now: float, status: int, retry_after_s: float | None, *, first: int = 0) -> None:
        """A call that went has an answer."""
        if status not in {TOO_MANY, UNAVAILABLE}:
            self.ended(first=first)
            return
        wait = DEFAULT_WAIT_S if retry_after_s is None else min(max(retry_after_s, 0.0), LONGEST_WAIT_S)
        if status == TOO_MANY:
            self._throttled_until = max(self._throttled_until, now + wait)
        else:
            self._down_until = max(self._down_until, now + wait)
        self._recovering = True
        self._first, self._first_since = 0, -math.inf

    def ended(self, *, first: int) -> None:
        """A call that went has its end, and the API did not ask to be left alone. Of the first ones only the latest counts."""
        if first and first == self._first:
            self._recovering = False
            self._first, self._first_since = 0, -math.inf

    def probed(self, *, healthy: bool) -> None:
        """An elected look has its end."""
        self._probing = False
        if healthy:
            self._down_until = -math.inf

    def _elect(self, now: float) -> Probe | Shed:
        waits = LATE_S if self._probing else PROBE_EVERY_S
        if not self._has_probe or now < self._last_probe + waits:
            return self._shed(now)
        self._last_probe, self._probing = now, True
        return Probe()

    def _shed(self, now: float) -> Shed:
        until = max(self._throttled_until, self._down_until)
        return Shed(max(1, math.ceil(until - now)))


def retry_after_s(value: str, unix_s: float) -> float | None:
    """What a Retry-After header asks for, in seconds from `unix_s`; None if it is neither seconds nor a date."""
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:_DIGITS]) if len(text) <= _DIGITS else LONGEST_WAIT_S
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - unix_s)
    except (ValueError, OverflowError):
        return None
