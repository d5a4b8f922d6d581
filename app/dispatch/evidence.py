"""Evidence is kept before an answer refers to it, so that a digest on a result can always be looked up."""

from collections.abc import Sequence
from typing import Protocol

from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Fact, Worker, WorkerInfo

_MAX_KNOWN = 1_024
_MAX_HEARD = 32


class EvidenceStore(Protocol):
    """The part of the store that keeps evidence; putting the same twice is harmless."""

    async def put(self, sha256: str, provider: str, tier: Tier, facts: Sequence[Fact]) -> None: ...


class EvidenceKeeper:
    """Remembers which digests are stored already; bounded."""

    def __init__(self, store: EvidenceStore) -> None:
        """Nothing is known to be stored yet."""
        self._store = store
        self._known: dict[str, None] = {}
        self._heard: dict[str, WorkerInfo] = {}

    @property
    def known(self) -> frozenset[str]:
        """Digests that running answers may still refer to."""
        return frozenset(self._known)

    def knows(self, sha256: str) -> bool:
        """Whether the facts behind this digest are stored."""
        return sha256 in self._known

    def hear(self, info: WorkerInfo) -> None:
        """Remember what a worker said of itself: a run may end on evidence that is no longer the latest."""
        self._heard.pop(info.evidence_sha256, None)
        self._heard[info.evidence_sha256] = info
        while len(self._heard) > _MAX_HEARD:
            del self._heard[next(iter(self._heard))]

    async def learn(self, worker: Worker, sha256: str = "") -> WorkerInfo:
        """Store the facts with that digest if any worker stated them lately, else those that `worker` states now.

        Raises StoreError, WorkerLost.
        """
        info = self._heard.get(sha256) or await worker.info()
        await self._store.put(info.evidence_sha256, info.provider, info.tier, info.facts)
        self._known[info.evidence_sha256] = None
        while len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return info
