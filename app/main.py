"""The only composition root: from settings and started provider processes to an application that owns what it opens."""

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any, cast

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from app.api import describe, grants, health, runs
from app.api.document import document
from app.api.services import Brokerage, Readiness, Services
from app.connect import routes as connect
from app.dispatch.admission import kinds_of
from app.dispatch.broker import BrokerAccess, BrokerSupervisor
from app.dispatch.brokerlink import ELSEWHERE, BrokerLink
from app.dispatch.disk import DiskWatch
from app.dispatch.dispatcher import Dispatcher, Surroundings
from app.dispatch.evidence import EvidenceKeeper
from app.dispatch.keyed import Keeper, Room
from app.dispatch.leases import Grants
from app.dispatch.quota import Quota, Rate
from app.dispatch.replica import Replica
from app.dispatch.settler import Settler
from app.dispatch.supervisor import ProviderProcess, ProviderSupervisor, supervised
from app.http.answers import exception_handlers, problem_response
from app.http.budget import Budget
from app.http.ids import request_id_of
from app.http.limits import BodyLimits, ListenerLimits, body_limits
from app.http.middleware import Access, Authenticate, rim
from app.identity import Caller, token_sha256
from app.log import event, failure, logger
from app.settings import Settings
from app.store.ballast import Ballast
from app.store.store import Store, open_store
from app.store.stored import RUN_BYTES, StorageLimit
from app.store.values import StoreError
from plimsoll.contract.refusals import Code, Reason, Refusal, Refused

VERSION = version("plimsoll-server")
HINT = "Send `Authorization: Bearer TOKEN`. Make one on the server: {where}plimsoll-admin callers create NAME"
_REQUESTS_A_RUN = 10
_LEAST_REQUESTS = 600
_DAY_MS = 86_400_000
_PRUNE_PAUSES, _PRUNE_PAUSE_S = 60, 60.0
"""Retention works once an hour, and sooner when the disk is full."""
_BALLAST_S = 1.0
_SHARE_OF_DISK = 4
"""What one caller stores is at most a quarter of the disk, and so are its kept answers."""
_STORED_ELSEWHERE = 16 << 30
_BETWEEN_BATCHES_S = 0.1
DATABASE_DOWN = Refusal(Code.UNAVAILABLE, "The database is not available.", Reason.ENVIRONMENT)


NO_BROKER = Brokerage("none", lambda: False, lambda: True)


def unix_ms() -> int:
    """The wall clock, milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def around() -> Surroundings:
    """The real clock and randomness."""
    return Surroundings(
        unix_ms=unix_ms, new_run_id=lambda: secrets.token_hex(16), owner=secrets.token_hex(16)
    )


@dataclass(slots=True)
class Service:
    """The application and what it runs on. `services` and `store` are None outside `opened`."""

    settings: Settings
    processes: Sequence[ProviderProcess]
    surroundings: Surroundings
    body: BodyLimits
    broker: BrokerAccess | None = None
    app: ASGIApp = field(init=False)
    api: FastAPI = field(init=False)
    services: Services | None = None
    store: Store | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Services]:
        """Own providers, database and tasks for the length of the block; serve inside it. Raises StoreError."""
        async with AsyncExitStack() as stack:
            stack.callback(self._closed)
            self.services = await _open(stack, self)
            yield self.services

    @property
    def limits(self) -> ListenerLimits:
        """For the listener it is served by."""
        return ListenerLimits(body_bytes=self.body.size)

    def _closed(self) -> None:
        self.services = self.store = None

    def running(self) -> Services:
        """The services. Raises Refused outside `opened`."""
        if self.services is None:
            raise Refused(Refusal(Code.UNAVAILABLE, "The service is not started.", Reason.ENVIRONMENT))
        return self.services


def create_service(
    settings: Settings,
    processes: Sequence[ProviderProcess] = (),
    *,
    private: Mapping[str, Caller] | None = None,
    surroundings: Surroundings | None = None,
    broker: BrokerAccess | None = None,
) -> Service:
    """The service over `processes`, and `broker` for runs with grants.

    `private` maps tokens to in-memory callers and replaces those of the database.
    """
    limits = body_limits(kinds_of(each.name for each in processes))
    service = Service(settings, tuple(processes), surroundings or around(), limits, broker)
    service.api = _api(service)
    access = Access(
        authenticate=_authenticate(service, private),
        hosts=frozenset(allowed_hosts(settings)),
        token_hint=HINT.format(where=""),
        local_hint=local_hint(settings),
        spend=Rate(requests_per_min(settings), time.monotonic).spend,
        insecure=settings.insecure,
        digest=token_sha256 if private is None else _any_digest,
    )
    service.app = rim(service.api, access)
    return service


async def _database_failed(request: Request, error: Exception) -> Response:
    """No mark: what was asked for may be about a run that ran."""
    failure(logger, "database.failed", error, request_id=request_id_of(request.scope))
    return problem_response(request.scope, Refusal(Code.UNAVAILABLE, DATABASE_DOWN.detail))


def _api(service: Service) -> FastAPI:
    api = FastAPI(
        title="Plimsoll",
        version=VERSION,
        summary="Runs untrusted code in a sandbox and says, on every result, how strong the wall was.",
        exception_handlers=cast("Any", {**exception_handlers(), StoreError: _database_failed}),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    for room in (runs, grants, describe, health, connect):
        api.include_router(room.router(service.running))
    return api


async def _open(stack: AsyncExitStack, service: Service) -> Services:
    surroundings = service.surroundings
    settings = service.settings
    supervisors = await stack.enter_async_context(supervised(service.processes))
    store = service.store = await stack.enter_async_context(
        open_store(settings.database_url, clock=surroundings.unix_ms)
    )
    await _reconcile(store, surroundings)
    surroundings = replace(surroundings, disk_full=DiskWatch(store.free_fraction).full)
    if store.ballast:
        stack.callback(store.ballast.remove)
    store.runs.limit = limit = storage_limit(settings, store.disk_bytes())
    if not store.sole_owner:
        # Entered first, left last: while an end may still be written, nobody else may settle its run for good.
        def cancel(run_id: str) -> bool:
            return dispatcher.cancel(run_id)

        await stack.enter_async_context(Replica(store.replicas, store.runs, cancel, surroundings.owner))
    settler = await stack.enter_async_context(Settler())
    brokered, brokerage = await _broker(stack, service.broker, store, settler)
    keeper = EvidenceKeeper(store.evidence)
    for each in supervisors:
        each.on_info = keeper.hear
    running = Dispatcher(
        supervisors,
        runs=store.runs,
        evidence=keeper,
        quota=_quota(settings),
        settler=settler,
        output_bytes=settings.output_bytes,
        around=surroundings,
        grants=brokered,
    )
    dispatcher = await stack.enter_async_context(running)
    settler.watch(_prune(store, keeper, settings.retention_days * _DAY_MS, surroundings))
    if store.ballast:
        settler.watch(_keep_ballast(store.ballast))
    room = Room(
        min(settings.kept_caller_mb << 20, limit.bytes), settings.kept_total_mb << 20, settings.output_bytes
    )
    return Services(
        dispatcher=dispatcher,
        keeper=Keeper(dispatcher, store.runs, room),
        unix_ms=surroundings.unix_ms,
        runs=store.runs,
        evidence=store.evidence,
        output_bytes=settings.output_bytes,
        body=service.body,
        budget=Budget(),
        version=VERSION,
        readiness=lambda: readiness(dispatcher, supervisors, surroundings.disk_full, brokerage),
        grants=store.grants,
        broker=brokerage,
    )


async def _broker(
    stack: AsyncExitStack, access: BrokerAccess | None, store: Store, settler: Settler
) -> tuple[Grants, Brokerage]:
    """What the dispatcher and the routes need of the broker, owned by `stack`."""
    if access is None:
        return Grants(store.grants, None), NO_BROKER
    link = await stack.enter_async_context(BrokerLink(access.url, access.control))
    if access.process is None:
        settler.watch(link.watch(lambda: ELSEWHERE))
        there = Brokerage(access.kind, lambda: link.answered, lambda: link.asked)
        return Grants(store.grants, link), there
    supervisor = await stack.enter_async_context(BrokerSupervisor(access.process))
    settler.watch(link.watch(lambda: supervisor.start))
    given = Grants(store.grants, link, start=lambda: supervisor.start)
    return given, Brokerage(access.kind, supervisor.serving.is_set, lambda: supervisor.told)


async def _reconcile(store: Store, surroundings: Surroundings) -> None:
    """The sole owner of a database knows that whatever is open was left by a process that is gone."""
    if store.sole_owner:
        settled = await store.runs.reconcile_at_start(surroundings.unix_ms(), "service_restarted")
        if settled:
            event(logger, "runs.reconciled", count=settled)


def _quota(settings: Settings) -> Quota:
    return Quota(
        rate_per_min=settings.rate_per_min,
        per_caller=settings.per_caller_concurrent,
        total=settings.max_concurrent,
        clock=time.monotonic,
    )


def requests_per_min(settings: Settings) -> int:
    """Requests of any kind that one caller may send a minute: reads and refused ones cost as well. 0 is no limit."""
    return settings.rate_per_min and max(_LEAST_REQUESTS, settings.rate_per_min * _REQUESTS_A_RUN)


def readiness(
    dispatcher: Dispatcher,
    members: Sequence[ProviderSupervisor],
    disk_full: Callable[[], bool],
    broker: Brokerage = NO_BROKER,
) -> Readiness:
    """Ready once each provider's first evidence ended and the broker said its first word, and not while draining.

    Reasons are codes, also when ready: what keeps a provider from serving, and from proving the next stronger wall.
    """
    pending = [f"{each.provider}:evidence_pending" for each in members if not each.evidence_ended]
    if not broker.told():
        pending.append("broker:pending")
    if dispatcher.draining:
        pending.append("draining")
    if disk_full():
        pending.append("disk_full")
    amiss = [
        f"{each.provider}:{code}"
        for each in members
        if each.latest
        for code in (*each.latest.faults, *each.latest.shortfalls)
    ]
    away = [f"{each.provider}:away" for each in members if each.evidence_ended and each.away]
    if broker.kind != "none" and broker.told() and not broker.serving():
        away.append("broker:away")
    return Readiness(not pending, (*pending, *amiss, *away))


def _any_digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _authenticate(service: Service, private: Mapping[str, Caller] | None) -> Authenticate:
    by_digest = {_any_digest(token): caller for token, caller in (private or {}).items()}

    async def from_memory(digest: str) -> Caller | None:
        return by_digest.get(digest)

    async def from_database(digest: str) -> Caller | None:
        if service.store is None:
            raise Refused(DATABASE_DOWN)
        try:
            return await service.store.callers.authenticate(digest, unix_ms())
        except StoreError as error:
            raise Refused(DATABASE_DOWN) from error

    return from_database if private is None else from_memory


async def _prune(store: Store, keeper: EvidenceKeeper, keep_ms: int, surroundings: Surroundings) -> None:
    """Every hour drop what is older than the retention, in small batches, and give its room back to the disk."""
    while True:
        try:
            more = True
            while more:
                more = await store.prune(surroundings.unix_ms() - keep_ms, keep_evidence=keeper.known) > 0
                await asyncio.sleep(_BETWEEN_BATCHES_S)
            while await store.shrink():
                await asyncio.sleep(_BETWEEN_BATCHES_S)
        except StoreError as error:
            failure(logger, "prune.failed", error)
        for _ in range(_PRUNE_PAUSES):
            await asyncio.sleep(_PRUNE_PAUSE_S)
            if surroundings.disk_full():
                break


async def _keep_ballast(ballast: Ballast) -> None:
    """For ever: give its room back when the disk is full, and take it again when there is some."""
    failed = False
    while True:
        try:
            match await asyncio.to_thread(ballast.tend):
                case "released":
                    event(logger, "ballast.released", level=logging.ERROR)
                case "made":
                    event(logger, "ballast.made")
                case None:
                    pass
            failed = False
        except OSError as error:
            if not failed:
                failure(logger, "ballast.failed", error)
            failed = True
        await asyncio.sleep(_BALLAST_S)


def storage_limit(settings: Settings, disk_bytes: int | None) -> StorageLimit:
    """What one caller may store: as it is set, or a share of the disk; on Postgres nobody here knows the disk."""
    share = _STORED_ELSEWHERE if disk_bytes is None else disk_bytes // _SHARE_OF_DISK
    size = (settings.stored_caller_mb << 20) or share
    return StorageLimit(settings.stored_caller_runs or size // RUN_BYTES, size)


def allowed_hosts(settings: Settings) -> Sequence[str]:
    """Host headers accepted: those configured, else the bound address and localhost."""
    if settings.allowed_hosts:
        return settings.allowed_hosts
    host = settings.address.host
    bound = () if settings.address.path else (f"[{host}]" if ":" in host else host,)
    return (*bound, "localhost")


def local_hint(settings: Settings) -> str:
    """How to make a caller, for a 401. Only this machine is told where the data directory is, so nobody behind a proxy is."""
    alone = settings.address.loopback and not settings.allowed_hosts and not settings.trusted_proxies
    return HINT.format(where=f"PLIMSOLL_DATA_DIR={settings.data_dir} " if alone else "")


def openapi_document() -> dict[str, Any]:
    """The content of openapi.json. Opens nothing."""
    return document(create_service(Settings()).api)
