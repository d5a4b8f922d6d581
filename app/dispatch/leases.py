"""A run's grant: who may use which profile, the lease that is made before the run, and its sure end.

A profile that does not exist and one that is another caller's are refused alike. The lease is registered, and the credential
minted, before the run's row is written; when that fails nothing is dispatched. It is closed before the result leaves, and on
every other end; where a broker of ours cannot be told, that start of it is ended, and every lease of its with it. A lease
belongs to the start that gave it: one that is gone takes its leases along, and no news of it touches the next.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Protocol

from app.dispatch.advice import advise
from app.dispatch.brokerlink import ELSEWHERE, BrokerDown, Start
from app.identity import Caller
from app.log import event, failure, logger
from app.store.values import StoredGrant, StoreError
from plimsoll.contract import codec
from plimsoll.contract.advice import Advice, AdviceTo
from plimsoll.contract.leases import CallTrace, Closed, Registered, Registration
from plimsoll.contract.refusals import Code, Reason, Refusal, Refused
from plimsoll.contract.requests import Cell, Module, RunRequest
from plimsoll.contract.worker import Lease

TRACE_BYTES: Final = 256 << 10
"""Of one trace as it is kept; entries from its end are left out until it fits."""

NOT_YOURS: Final = Refusal(
    Code.PERMISSION_DENIED, "No grant profile of this name is for this caller.", Reason.PERMISSION
)
NO_LEASE: Final = Refusal(
    Code.UNAVAILABLE,
    "The broker gave no lease for this grant profile; the service's log says why.",
    Reason.ENVIRONMENT,
)
UNREADABLE: Final = Refusal(Code.UNAVAILABLE, "The database is not available.", Reason.ENVIRONMENT)


class Profiles(Protocol):
    """The part of the store that knows profiles, for the callers they are for."""

    async def get(self, name: str, caller: str) -> StoredGrant | None: ...


class Broker(Protocol):
    """The service's side of a broker."""

    @property
    def url(self) -> str: ...
    async def register(self, asked: Registration) -> Registered: ...
    async def close(self, run_id: str) -> Closed: ...


def profile_name(request: RunRequest) -> str:
    """The profile that a request names, or nothing."""
    payload = request.payload
    return "" if isinstance(payload, Cell | Module) else payload.grant_profile


@dataclass(frozen=True, slots=True)
class KeptCalls(CallTrace):
    """A trace as a run's row keeps it, with the findings on it. `told` is who may see those; None: none were made.

    Fields are only ever added, with a default: rows of before have a trace alone.
    """

    advice: tuple[Advice, ...] = ()
    told: AdviceTo | None = None

    def advice_for(self, *, operator: bool) -> tuple[Advice, ...] | None:
        """The findings, for who may see them; None: nothing is to be said."""
        shown = self.told is AdviceTo.CALLER or (self.told is AdviceTo.OPERATOR and operator)
        return self.advice if shown else None


@dataclass(slots=True)
class Held:
    """One run's lease. `trace` is what is known of its calls once it is closed; None then means that it is lost.

    `allow` are the profile's routes, `advice` says who is told of findings on the calls.
    """

    run_id: str
    profile: str
    lease: Lease
    broker: Broker = field(repr=False)
    start: Start = field(repr=False)
    trace: CallTrace | None = None
    closing: asyncio.Task[None] | None = None
    allow: tuple[str, ...] = ()
    advice: AdviceTo = AdviceTo.OFF
    _kept: KeptCalls | None = None

    async def close(self) -> None:
        """End the run's calls, once. Whatever happens, its secret opens nothing afterwards, or its broker is being ended.

        Whoever waits may be cancelled, at a run's deadline for example, and asks again: the end itself goes on.
        """
        if self.closing is None:
            self.closing = asyncio.create_task(self._close(), name=f"lease-{self.run_id}")
        await asyncio.shield(self.closing)

    async def _close(self) -> None:
        if not self.start.present():
            event(logger, "grant.trace_lost", level=logging.WARNING, run_id=self.run_id)
            return
        try:
            self.trace = (await self.broker.close(self.run_id)).trace
        except BrokerDown as error:
            event(logger, "grant.not_closed", level=logging.ERROR, run_id=self.run_id, cause=str(error))
            self.start.give_up()

    def calls(self) -> KeptCalls | None:
        """The trace with the findings on it; None where there is none, or not yet. Findings are made once, and cost no run."""
        if self._kept is None and self.trace is not None:
            self._kept = self._advised(self.trace)
        return self._kept

    def _advised(self, trace: CallTrace) -> KeptCalls:
        plain: dict[str, Any] = {each.name: getattr(trace, each.name) for each in fields(CallTrace)}
        if self.advice is AdviceTo.OFF:
            return KeptCalls(**plain)
        try:
            return KeptCalls(**plain, advice=advise(trace, self.allow), told=self.advice)
        except Exception as error:  # noqa: BLE001  # the result is final: whatever fails here, it stays as it is
            failure(logger, "grant.advice_failed", error, run_id=self.run_id)
            return KeptCalls(**plain)

    def kept(self) -> str | None:
        """The trace as the run's row keeps it; None where there is none."""
        calls = self.calls()
        return None if calls is None else written(calls)


class Grants:
    """What the dispatcher asks for runs that name a profile. `broker` None: this service has none."""

    def __init__(
        self,
        profiles: Profiles,
        broker: Broker | None,
        *,
        start: Callable[[], Start] = lambda: ELSEWHERE,
    ) -> None:
        """`start` is the broker's present start; while that does not serve there are no leases."""
        self._profiles, self._broker, self._start = profiles, broker, start

    @property
    def served(self) -> bool:
        """Whether there is a broker at all."""
        return self._broker is not None

    async def permitted(self, caller: Caller, request: RunRequest) -> StoredGrant | None:
        """The profile that a request names; None when it names none, or there is no broker. Raises Refused."""
        if not (name := profile_name(request)) or self._broker is None:
            return None
        try:
            found = await self._profiles.get(name, caller.name)
        except StoreError as error:
            raise Refused(UNREADABLE) from error
        if found is None:
            raise Refused(NOT_YOURS)
        return found

    async def lease(
        self, grant: StoredGrant, caller: Caller, run_id: str, worker: str, budget_s: float
    ) -> Held:
        """A lease for one run on one worker. Raises Refused: then nothing is to be dispatched, and none is left."""
        start = self._start()
        if self._broker is None or not start.present():
            raise self._refused(grant, run_id, "away")
        asked = Registration(run_id, grant.profile, grant.sealed, caller.id, caller.name, worker, budget_s)
        try:
            given = await self._broker.register(asked)
        except BrokerDown as error:
            await self._held(grant, run_id, worker, "", start).close()
            raise self._refused(grant, run_id, str(error)) from None
        if not given.secret:
            raise self._refused(grant, run_id, given.fault)
        if not start.present():
            # The next start may have answered in place of this one. Its lease is closed, and nobody has the secret.
            with suppress(BrokerDown):
                await self._broker.close(run_id)
            raise self._refused(grant, run_id, "away")
        return self._held(grant, run_id, worker, given.secret, start)

    def _held(self, grant: StoredGrant, run_id: str, worker: str, secret: str, start: Start) -> Held:
        assert self._broker is not None  # noqa: S101  # `lease` looked
        lease = Lease(self._broker.url, worker, secret)
        profile, to = grant.profile, grant.advice
        return Held(
            run_id,
            profile.name,
            lease,
            self._broker,
            start,
            allow=profile.allow,
            # A word that somebody wrote past the command tells nobody anything.
            advice=AdviceTo(to) if to in set(AdviceTo) else AdviceTo.OFF,
        )

    @staticmethod
    def _refused(grant: StoredGrant, run_id: str, fault: str) -> Refused:
        event(
            logger,
            "grant.refused",
            level=logging.ERROR,
            run_id=run_id,
            profile=grant.profile.name,
            fault=fault,
        )
        return Refused(NO_LEASE)


def written(trace: KeptCalls) -> str:
    """A trace as text within its bound."""
    while len(text := codec.dumps(trace)) > TRACE_BYTES and trace.entries:
        trace = _shorter(trace)
    return text.decode()


def _shorter(trace: KeptCalls) -> KeptCalls:
    kept = trace.entries[: len(trace.entries) // 2]
    routes = trace.routes[: max((entry.route for entry in kept), default=-1) + 1]
    left_out = trace.left_out + len(trace.entries) - len(kept)
    return replace(trace, routes=routes, entries=kept, left_out=left_out)
