"""What the routes need, gathered once by the composition root."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.dispatch.broker import BrokerKind
from app.dispatch.dispatcher import Dispatcher
from app.dispatch.keyed import Keeper
from app.http.budget import Budget
from app.http.limits import BodyLimits
from app.store.values import RunsPage, StoredEvidence, StoredGrant, StoredRun


class StoredRuns(Protocol):
    """Reading runs; `caller_id` None reads everybody's. Another caller's run or cursor is None, like an unknown one."""

    async def get(self, run_id: str, caller_id: str | None) -> StoredRun | None: ...
    async def body(self, run_id: str, caller_id: str | None) -> bytes | None: ...
    async def request_cancel(self, run_id: str, caller_id: str | None) -> StoredRun | None: ...
    async def grant_trace(self, run_id: str, caller_id: str | None) -> str | None: ...
    async def page(self, caller_id: str | None, cursor: str | None, limit: int) -> RunsPage | None: ...


class StoredFacts(Protocol):
    """Reading evidence."""

    async def get(self, sha256: str) -> StoredEvidence | None: ...


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether new runs can be taken, and why not or what is amiss; codes only."""

    ready: bool
    reasons: tuple[str, ...] = ()


class StoredGrants(Protocol):
    """Reading grant profiles."""

    async def usable(self, caller: str) -> list[StoredGrant]: ...
    async def keys(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Brokerage:
    """Which broker there is, whether it serves now, and whether that could be told once."""

    kind: BrokerKind
    serving: Callable[[], bool]
    told: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Services:
    """The running service as its routes see it."""

    dispatcher: Dispatcher
    keeper: Keeper
    unix_ms: Callable[[], int]
    runs: StoredRuns
    evidence: StoredFacts
    output_bytes: int
    body: BodyLimits
    budget: Budget
    version: str
    readiness: Callable[[], Readiness]
    grants: StoredGrants
    broker: Brokerage


GetServices = Callable[[], Services]
