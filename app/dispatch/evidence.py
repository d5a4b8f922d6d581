"""Evidence is kept before an answer refers to it, so that a digest on a result can always be looked up."""

from collections.abc import Sequence
from typing import Protocol

from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Fact, Worker, WorkerInfo

_MAX_KNOWN = 1_024


class EvidenceStore(Protocol):
    """The part of the store that keeps evidence; putting the same twice is harmless."""

    async def put(self, sha256: str, provider: str, tier: Tier, facts: Sequence[Fact]) -> None: ...


class EvidenceKeeper:
    """Remembers which digests are stored already; bounded."""

    def __init__(self, store: EvidenceStore) -> None:
        """Nothing is known to be stored yet."""
        self._store = store
        self._known: dict[str, None] = {}

    @property
    def known(self) -> frozenset[str]:
        """Digests that running answers may still refer to."""
        return frozenset(self._known)

    def knows(self, sha256: str) -> bool:
        """Whether the facts behind this digest are stored."""
        return sha256 in self._known

    async def learn(self, worker: Worker) -> WorkerInfo:
        """Store the facts `worker` states now. Raises StoreError, WorkerLost."""
        info = await worker.info()
        await self._store.put(info.evidence_sha256, info.provider, info.tier, info.facts)
        self._known[info.evidence_sha256] = None
        while len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return info
