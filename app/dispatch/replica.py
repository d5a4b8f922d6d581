"""One of several services on one database: a lease that says it lives, and care for the runs of those that died.

Every two seconds the lease is renewed, runs whose owner's lease ended are settled as far as that can be known, and cancels that
came in through other replicas are carried out.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from app.log import event, failure, logger
from app.store.values import StoreError

BEAT_S = 2.0
LEASE_MS = 10_000
FINAL_AFTER_MS = 60_000
"""How long an orphan's `may_have_run` may still change: its owner could come back with the result."""


class Replicas(Protocol):
    """The leases."""

    async def beat(self, replica_id: str, ttl_ms: int) -> None: ...
    async def leave(self, replica_id: str) -> None: ...


class SharedRuns(Protocol):
    """What the replicas do for each other."""

    async def adopt_orphans(self, own_id: str, reason: str, final_after_ms: int) -> int: ...
    async def cancel_requests(self, owner: str) -> list[str]: ...


class Replica:
    """Owns the lease and its task. `cancel` ends one run of this replica."""

    def __init__(
        self, replicas: Replicas, runs: SharedRuns, cancel: Callable[[str], bool], owner: str
    ) -> None:
        self._replicas, self._runs, self._cancel, self._owner = replicas, runs, cancel, owner
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Take the lease before the first run is taken."""
        await self._replicas.beat(self._owner, LEASE_MS)
        self._task = asyncio.create_task(self._work(), name="replica")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lease back, so that the others need not wait for its end."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            await self._replicas.leave(self._owner)
        except StoreError as failed:
            failure(logger, "replica.leave_failed", failed)

    async def _work(self) -> None:
        while True:
            try:
                await self.beat()
            except StoreError as failed:
                failure(logger, "replica.beat_failed", failed)
            await asyncio.sleep(BEAT_S)

    async def beat(self) -> None:
        """One round. Raises StoreError."""
        await self._replicas.beat(self._owner, LEASE_MS)
        adopted = await self._runs.adopt_orphans(self._owner, "replica_lost", FINAL_AFTER_MS)
        if adopted:
            event(logger, "runs.adopted", count=adopted)
        for run_id in await self._runs.cancel_requests(self._owner):
            self._cancel(run_id)
