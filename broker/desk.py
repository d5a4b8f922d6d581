"""What the broker does for one registration, one call, one end: everything the API answers with, without HTTP.

One trust context, one set of rules for addresses and one count of calls and bytes serve the whole process.
"""

import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.vault.unseal import BoxFault, Unsealer
from broker.addresses import AddressFault, Rules, system_resolver
from broker.calls import Calls, Clocks
from broker.hooks import HOOK_S, OUTPUT_BYTES
from broker.lease import Leases, Terms
from broker.mint import Minter, OneProfile
from broker.names import Names
from broker.profiles import Handed, ProfileFault, Sources, grant_of, minter_for
from broker.settings import Hooks
from broker.trace import Trace
from broker.upstream import Limits, Upstream, connect
from plimsoll.contract.grants import Origin, parse_origin
from plimsoll.contract.leases import CallTrace, Registration, TraceEntry

CALLS: Final = 4_096
CALLS_OF_ONE: Final = 256
"""Calls at once in this process, and of one run, whether they wait or are on their way."""
WAITING_BYTES: Final = 64 << 20
SHARE: Final = 2
"""One run holds at most half of what is left beside it: so something is always left, for those that hold little."""
_HOOK_LIMITS: Final = Limits(connect_s=HOOK_S, first_byte_s=HOOK_S, total_s=HOOK_S, back_bytes=OUTPUT_BYTES)


class Gate:
    """How many calls, and how many bytes of their messages, this process holds at once."""

    def __init__(self, calls: int = CALLS, of_one: int = CALLS_OF_ONE, waiting: int = WAITING_BYTES) -> None:
        """At most so many."""
        self.calls, self.waiting = calls, waiting
        self._of_one = of_one
        self._by_run: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    @contextmanager
    def hold(self, run_id: str) -> Iterator[Callable[[int], bool] | None]:
        """A place for one call, and a function that takes bytes for it and says whether there was room; None: no place."""
        taken = 0

        def take(size: int) -> bool:
            nonlocal taken
            if (self._bytes[run_id] + size) * SHARE > self.waiting:
                return False
            self.waiting -= size
            self._bytes[run_id] += size
            taken += size
            return True

        if self.calls <= 0 or self._by_run[run_id] >= self._of_one:
            yield None
            return
        self.calls -= 1
        self._by_run[run_id] += 1
        try:
            yield take
        finally:
            self.calls += 1
            self.waiting += taken
            self._bytes[run_id] -= taken
            self._leave(run_id)

    def _leave(self, run_id: str) -> None:
        self._by_run[run_id] -= 1
        if not self._by_run[run_id]:
            del self._by_run[run_id], self._bytes[run_id]


@dataclass(frozen=True, slots=True)
class Means:
    """What a desk works with."""

    unsealer: Unsealer
    hooks: Hooks
    rules: Rules
    tls: ssl.SSLContext
    clocks: Clocks
    randomness: Callable[[int], bytes]


class Desk:
    """One broker's."""

    def __init__(self, means: Means, leases: Leases) -> None:
        """`leases` are its leases; whoever made them closes them."""
        self.leases, self.gate = leases, Gate()
        self._means = means
        self._names = Names(system_resolver)
        self._sources = Sources(
            unsealer=means.unsealer,
            hooks=means.hooks,
            connect=lambda origin: self._connect(origin, _HOOK_LIMITS),
            one_profile=OneProfile(means.randomness(32)),
            clock=means.clocks.unix,
            randomness=means.randomness,
        )

    async def register(self, asked: Registration) -> str | StrEnum:
        """The secret of a new lease, or the fault."""
        minter = minter_for(Handed(asked.profile, asked.sealed, asked.caller_name), self._sources)
        if isinstance(minter, ProfileFault | BoxFault):
            return minter
        given = await self._open(asked, minter)
        return given.hex() if isinstance(given, bytes) else given

    async def _open(self, asked: Registration, minter: Minter) -> bytes | StrEnum:
        profile = asked.profile
        terms = Terms(
            asked.run_id, profile.name, asked.caller_id, asked.worker, asked.budget_s, profile.origin
        )
        limits = Limits(out_bytes=profile.out_bytes, back_bytes=profile.back_bytes)
        return await self.leases.register(
            terms,
            grant_of(profile),
            minter,
            lambda: self._connect(parse_origin(profile.origin), limits),
        )

    def calls_of(self, shown: str, run_id: str, worker: str) -> Calls | None:
        """The calls that this lease's secret opens; None for one that is no lease's."""
        try:
            secret = bytes.fromhex(shown)
        except ValueError:
            return None
        return self.leases.calls_of(secret, run_id, worker)

    async def close(self, run_id: str) -> CallTrace | None:
        """End the run's calls, and say what they were."""
        trace = await self.leases.close(run_id)
        return None if trace is None else told(trace)

    async def _connect(self, origin: Origin, limits: Limits) -> Upstream | AddressFault:
        return await connect(origin, self._means.rules, self._means.tls, limits, self._names)


def told(trace: Trace) -> CallTrace:
    """A trace as the service keeps it: each route once."""
    routes = {entry.route: None for entry in trace.entries}
    places = {route: place for place, route in enumerate(routes)}
    entries = (
        TraceEntry(places[each.route], each.status, each.delivered, each.bytes_back, each.ms, each.repeat)
        for each in trace.entries
    )
    return CallTrace(
        routes=tuple(routes),
        entries=tuple(entries),
        left_out=trace.left_out,
        sent=trace.sent,
        delivered=trace.delivered,
        bytes_out=trace.bytes_out,
        bytes_back=trace.bytes_back,
        probes=trace.probes,
        failed={code.value: count for code, count in trace.failed},
    )
