"""How much one caller, and this replica, may run: counted here, never waited for."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from plimsoll.contract.refusals import Code, Reason, Refusal, Refused

_MAX_BUCKETS = 10_000
_CALLER_FULL = "This caller already has as much at once as it may."


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at_s: float


class Rate:
    """A token bucket per caller. A rate of 0 is no limit. Buckets are bounded: a full one says nothing and is dropped."""

    def __init__(self, per_min: int, clock: Callable[[], float]) -> None:
        self._rate_s = per_min / 60
        self._burst = max(1.0, float(per_min))
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def spend(self, caller_id: str) -> int:
        """Take one token; 0 when there was one, else whole seconds until there is."""
        if not self._rate_s:
            return 0
        now = self._clock()
        bucket = self._buckets.pop(caller_id, None) or _Bucket(self._burst, now)
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.at_s) * self._rate_s)
        bucket.at_s = now
        self._buckets[caller_id] = bucket  # last used, last in order
        while len(self._buckets) > _MAX_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        if bucket.tokens < 1:
            return max(1, round((1 - bucket.tokens) / self._rate_s + 0.5))
        bucket.tokens -= 1
        return 0


class Quota:
    """A rate and a count of runs per caller, and a count for the replica. `clock` gives monotonic seconds."""

    def __init__(self, *, rate_per_min: int, per_caller: int, total: int, clock: Callable[[], float]) -> None:
        self._rate = Rate(rate_per_min, clock)
        self._per_caller = per_caller
        self._total = total
        self._running: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()

    @property
    def running(self) -> int:
        """Runs counted now."""
        return self._running.total()

    def enter(self, caller_id: str) -> "Counted":
        """Count one run of `caller_id` while the block runs. Raises Refused (`capacity`), with nothing counted."""
        if refusal := self._refusal(caller_id):
            raise Refused(refusal)
        return Counted(self._running, caller_id)

    def wait(self, caller_id: str) -> "Counted":
        """Count a long poll in the caller's concurrency while the block runs; it uses no rate and no place of the replica."""
        if self._busy(caller_id):
            raise Refused(_full(Code.CAPACITY, _CALLER_FULL, 1))
        return Counted(self._waiting, caller_id)

    def _busy(self, caller_id: str) -> bool:
        return self._running[caller_id] + self._waiting[caller_id] >= self._per_caller

    def _refusal(self, caller_id: str) -> Refusal | None:
        if wait_s := self._rate.spend(caller_id):
            return _full(Code.RATE_LIMITED, "This caller's rate of runs is used up.", wait_s)
        if self._busy(caller_id):
            return _full(Code.CAPACITY, _CALLER_FULL, 1)
        if self.running >= self._total:
            return _full(Code.CAPACITY, "This service already runs as much at once as it may.", 1)
        return None


def _full(code: Code, detail: str, wait_s: int) -> Refusal:
    return Refusal(code, detail, Reason.CAPACITY, retry_after_s=wait_s)


class Counted:
    """One more of `name` while the block runs. A class: a generator for every run costs several times as much."""

    __slots__ = ("_counter", "_name")

    def __init__(self, counter: Counter[str], name: str) -> None:
        self._counter, self._name = counter, name

    def __enter__(self) -> None:
        self._counter[self._name] += 1

    def __exit__(self, *_: object) -> None:
        self._counter[self._name] -= 1
        if not self._counter[self._name]:
            del self._counter[self._name]
