"""Which runs have a grant now, and the pass that proves it.

A lease is registered, its credential minted and its API's addresses judged, before the run starts; a failure there is a value,
and nothing runs. The worker's host side then shows the pass, 256 random bits bound to run, profile, caller and worker; no
pass enters a sandbox. A lease is closed before the run's result leaves, or when it expires, and a broker that was started anew
knows none.
"""

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Final, Self

from broker.addresses import AddressFault
from broker.calls import Calls, Clocks, Grant
from broker.credential import Credential
from broker.mint import Minter, MintFault, Order
from broker.places import Places
from broker.trace import Trace
from broker.upstream import Upstream

PASS_BYTES: Final = 32
TRACE_KEY_BYTES: Final = 32
LEASES: Final = 4_096
SEARCHES: Final = 2
"""Long answers that are searched at once, beside the event loop. They share one interpreter: more are no faster."""
GRACE_S: Final = 30.0
"""How long a lease outlives its run's budget, should nobody close it."""


class LeaseFault(StrEnum):
    """Why there is no lease; append-only."""

    FULL = "too_many_leases"
    TWICE = "run_has_a_lease"
    CLOSED = "closed_meanwhile"


@dataclass(frozen=True, slots=True)
class Terms:
    """Whose run it is, and where. `worker` names the one worker that may use the pass, `origin` the API."""

    run_id: str
    profile: str
    caller: str
    worker: str
    budget_s: float
    origin: str = ""


@dataclass(frozen=True, slots=True)
class _Lease:
    terms: Terms
    calls: Calls
    digest: bytes = field(repr=False)
    until: float


class Leases:
    """All leases of this process. An async context manager: at its exit all are closed."""

    def __init__(
        self,
        clocks: Clocks,
        randomness: Callable[[int], bytes],
        most: int = LEASES,
        searches: Executor | None = None,
    ) -> None:
        """`randomness` gives that many random bytes. Long answers are searched in `searches`, which is shut down at the end."""
        self._clocks, self._randomness, self._most = clocks, randomness, most
        # Threads of their own: the loop's are kept by name servers for as long as they like.
        self._searches = searches or ThreadPoolExecutor(SEARCHES, thread_name_prefix="search")
        self._by_run: dict[str, _Lease] = {}
        self._by_digest: dict[bytes, _Lease] = {}
        self._opening: set[str] = set()
        self._places = Places()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(self.close(run_id) for run_id in list(self._by_run)))
        self._searches.shutdown(wait=False, cancel_futures=True)

    async def register(
        self,
        terms: Terms,
        grant: Grant,
        minter: Minter,
        connect: Callable[[], Awaitable[Upstream | AddressFault]],
    ) -> bytes | MintFault | AddressFault | LeaseFault:
        """The pass of a new lease, or why there is none. Nothing was sent to the API."""
        if terms.run_id in self._by_run or terms.run_id in self._opening:
            return LeaseFault.TWICE
        if len(self._by_run) + len(self._opening) >= self._most:
            return LeaseFault.FULL
        self._opening.add(terms.run_id)
        try:
            return await self._opened(terms, grant, minter, connect)
        finally:
            self._opening.discard(terms.run_id)

    def calls_of(self, shown: bytes, run_id: str, worker: str) -> Calls | None:
        """The calls of the run whose pass `worker` shows; None for a pass that is unknown, closed, expired or another's."""
        lease = self._find(shown, run_id, worker)
        return None if lease is None else lease.calls

    async def close(self, run_id: str) -> Trace | None:
        """End the run's lease; None if it has none. From here on its pass opens nothing, and one that is being made is not."""
        self._opening.discard(run_id)
        lease = self._by_run.pop(run_id, None)
        if lease is None:
            return None
        del self._by_digest[lease.digest]
        return await lease.calls.close()

    async def sweep(self) -> int:
        """Close what expired: the runs whose end nobody told. How many they were."""
        now = self._clocks.monotonic()
        expired = [run_id for run_id, lease in self._by_run.items() if lease.until <= now]
        await asyncio.gather(*(self.close(run_id) for run_id in expired))
        return len(expired)

    async def _opened(
        self,
        terms: Terms,
        grant: Grant,
        minter: Minter,
        connect: Callable[[], Awaitable[Upstream | AddressFault]],
    ) -> bytes | MintFault | AddressFault | LeaseFault:
        async with AsyncExitStack() as undo:
            upstream = await connect()
            if isinstance(upstream, AddressFault):
                return upstream
            await undo.enter_async_context(upstream)
            credential = await minter.mint(Order(terms.profile, terms.caller, terms.run_id, terms.budget_s))
            if isinstance(credential, MintFault):
                return credential
            if terms.run_id not in self._opening:
                return LeaseFault.CLOSED
            undo.pop_all()  # from here on the lease closes it
            return self._keep(terms, grant, credential, upstream)

    def _keep(self, terms: Terms, grant: Grant, credential: Credential, upstream: Upstream) -> bytes:
        secret = self._randomness(PASS_BYTES)
        until = self._clocks.monotonic() + terms.budget_s + GRACE_S
        trace_key = self._randomness(TRACE_KEY_BYTES)
        calls = Calls(
            grant,
            credential,
            upstream,
            self._clocks,
            self._places.share(terms.caller, terms.origin),
            self._searches,
            trace_key=trace_key,
        )
        lease = _Lease(terms, calls, _digest(secret), until)
        self._by_run[terms.run_id] = self._by_digest[lease.digest] = lease
        return secret

    def _find(self, shown: bytes, run_id: str, worker: str) -> _Lease | None:
        digest = _digest(shown)
        lease = self._by_digest.get(digest)
        # Found by a digest, compared in constant time: how long it takes tells nothing about passes.
        if lease is None or not hmac.compare_digest(lease.digest, digest):
            return None
        ours = lease.terms.run_id == run_id and lease.terms.worker == worker
        return lease if ours and self._clocks.monotonic() < lease.until else None


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
