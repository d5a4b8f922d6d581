"""One run from its ticket to its end: write-ahead, start, follow, classify, write the end.

1. the row is committed as `starting`; if that fails nothing starts, and the ticket is voided
2. `start` is called once; from here the run is never sent anywhere again
3. an end from the worker is the result; its commit failing costs only `recorded`
4. silence is asked about once, with a fence; only the worker's own table proves that nothing ran
5. everything else is `may_have_run`
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from app.dispatch.admission import UNAVAILABLE
from app.dispatch.evidence import EvidenceKeeper
from app.dispatch.heard import Heard, Misfit
from app.dispatch.killpoints import KillPoint, Reached
from app.dispatch.leases import Held
from app.dispatch.outcome import Finished, audit_row, finished, finished_row, may_have_run
from app.dispatch.settler import Settler
from app.log import event, logger
from app.store.values import (
    AuditRow,
    FinishedRun,
    Keep,
    KeyTaken,
    QuotaExceeded,
    StartingRun,
    State,
    StorageExceeded,
    StoreError,
    StoreUnavailable,
)
from plimsoll.contract.refusals import Code, Reason, Refusal, Refused
from plimsoll.contract.requests import RunRequest
from plimsoll.contract.worker import (
    Accepted,
    Broken,
    Job,
    NotSent,
    RunState,
    Ticket,
    TicketRefused,
    Worker,
    WorkerLost,
    WorkerSilent,
)

_QUERY_S = 2.0
NO_ROOM_RETRY_S = 60
STORED_RETRY_S = 3_600
"""Retention looks once an hour."""
_SETTLE_TRIES = 30
_SETTLE_PAUSE_S = 2.0
_NEVER_RAN = frozenset({"unknown", "void"})
"""What only the worker's own table says, of a run whose ticket can never be spent any more."""

DATABASE_DOWN = Refusal(
    Code.UNAVAILABLE, "The database did not take the run, so it was not started.", Reason.ENVIRONMENT
)
NO_ROOM = Refusal(
    Code.CAPACITY, "There is no room to keep this answer.", Reason.CAPACITY, retry_after_s=NO_ROOM_RETRY_S
)
STORED_ENOUGH = Refusal(
    Code.STORAGE_LIMIT,
    "This caller has stored as many runs as it may; the oldest are deleted as their time comes.",
    Reason.CAPACITY,
    retry_after_s=STORED_RETRY_S,
)
GONE = Refusal(Code.UNAVAILABLE, "The run was cancelled before it was started.", Reason.REQUEST)


Render = Callable[[Finished], bytes]
"""The exact bytes of an answer that is kept."""

Unfinished = Literal[State.NOT_DISPATCHED, State.MAY_HAVE_RUN]


class Runs(Protocol):
    """The part of the store a run needs."""

    async def insert_starting(self, run: StartingRun, keep: Keep | None = None) -> None: ...
    async def finish(self, run_id: str, end: FinishedRun, body: bytes | None = None) -> bool: ...
    async def settle(
        self,
        run_id: str,
        *,
        state: Unfinished,
        reason: str,
        settled: bool,
        audit: AuditRow | None,
        grant_trace: str | None = None,
    ) -> bool: ...
    async def fence(self, run: StartingRun, reason: str, audit: AuditRow) -> bool: ...


@dataclass(slots=True)
class Cancel:
    """Whether the caller still wants the run, and how to stop it once it runs."""

    requested: bool = False
    stop: Callable[[], None] | None = None

    def request(self) -> None:
        """Ask once; harmless after the end."""
        self.requested = True
        if self.stop:
            self.stop()


@dataclass(slots=True)
class Attempt:
    """Everything one run carries. `unix_ms` is the wall clock, used for rows of ours only."""

    row: StartingRun
    request: RunRequest
    job: Job
    ticket: Ticket
    worker: Worker
    runs: Runs
    settler: Settler
    cancel: Cancel
    unix_ms: Callable[[], int]
    reached: Reached
    evidence: EvidenceKeeper
    keep: Keep | None = None
    render: Render | None = None
    lease: Held | None = None
    heard: Heard = field(init=False)

    def __post_init__(self) -> None:
        """Nothing is heard yet."""
        self.heard = Heard(self.request.payload)

    async def follow(self) -> Finished:
        """Start it and give its end. Raises Refused: marked when nothing ran, `may_have_run` without a mark otherwise."""
        try:
            if self.cancel.requested:
                await self._void()
                raise await self._not_dispatched(GONE)
            self.reached(KillPoint.BEFORE_SEND)
            heard = await self._follow()
            self.reached(KillPoint.AFTER_END_RECEIVED)
            return await self._finish(heard)
        finally:
            await self._end_calls()

    async def hold(self, given: Awaitable[Held]) -> None:
        """Wait for the run's lease, and hand it over with the run. Raises Refused (nothing ran); the ticket is void then."""
        try:
            self.lease = await given
        except Refused:
            await self._void()
            raise
        self.job = replace(self.job, lease=self.lease.lease)

    async def _end_calls(self) -> None:
        """Before any word about the run leaves."""
        if self.lease is not None:
            await self.lease.close()

    @property
    def _grant_trace(self) -> str | None:
        return None if self.lease is None else self.lease.kept()

    # 1 -----------------------------------------------------------------------------------------------------------
    async def write_ahead(self) -> None:
        """Commit the row. Raises Refused (nothing ran), or KeyTaken when another run holds its key; the ticket is void then."""
        self.reached(KillPoint.BEFORE_STARTING_COMMIT)
        try:
            await self.runs.insert_starting(self.row, self.keep)
        except KeyTaken:
            await self._void()
            raise
        except QuotaExceeded as error:
            await self._void()
            raise Refused(NO_ROOM) from error
        except StorageExceeded as error:
            await self._void()
            raise Refused(STORED_ENOUGH) from error
        except StoreError as error:
            await self._void()
            event(logger, "run.not_begun", level=logging.ERROR, run_id=self.row.id, cause=str(error))
            if isinstance(error, StoreUnavailable) and error.outcome == "unknown":
                self._fence_later(Reason.ENVIRONMENT)
            raise Refused(DATABASE_DOWN) from error
        self.reached(KillPoint.AFTER_STARTING_COMMIT)

    async def _void(self) -> None:
        """Give the slot and the lease back. A worker that cannot be asked keeps the ticket only until it expires."""
        await self._end_calls()
        try:
            async with asyncio.timeout(_QUERY_S):
                await self.worker.query(self.row.id, void=True)
        except (WorkerLost, TimeoutError):
            event(logger, "ticket.not_voided", level=logging.WARNING, run_id=self.row.id)

    # 2 -----------------------------------------------------------------------------------------------------------
    async def _follow(self) -> Heard:
        heard = self.heard
        try:
            await self._listen(heard)
        except (NotSent, TicketRefused) as proof:
            raise await self._not_dispatched(self._unstarted) from proof
        except Misfit as misfit:
            self.settler.watch(self._cancel_quietly())
            raise await self._misfit(misfit) from misfit
        except WorkerSilent:
            return await self._after_silence("no_answer")
        except WorkerLost:
            return await self._after_silence("worker_lost")
        finally:
            self.cancel.stop = None
        if heard.ended is None or heard.accepted is None:
            return await self._after_silence("no_end")
        return heard

    async def _listen(self, heard: Heard) -> None:
        """Until the end, which the worker gives or raises when it is due."""
        events = self.worker.start(self.ticket, self.job)
        self.cancel.stop = lambda: self.settler.watch(self._cancel_quietly())
        if self.cancel.requested:
            self.cancel.stop()
        self.reached(KillPoint.AFTER_SEND)
        async for each in events:
            if isinstance(each, Broken):
                raise await self._may_have_run(each.cause)
            heard.note(each)
            if isinstance(each, Accepted):
                self.reached(KillPoint.AFTER_ACCEPTED)

    @property
    def _unstarted(self) -> Refusal:
        """Why nothing ran: a cancel may have come between the write-ahead and the start."""
        return GONE if self.cancel.requested else UNAVAILABLE

    async def _cancel_quietly(self) -> None:
        try:
            async with asyncio.timeout(_QUERY_S):
                await self.worker.cancel(self.row.id)
        except (WorkerLost, TimeoutError):
            event(logger, "cancel.lost", level=logging.WARNING, run_id=self.row.id)

    # 3 -----------------------------------------------------------------------------------------------------------
    async def _finish(self, heard: Heard) -> Finished:
        await self._end_calls()
        run = self._finished(heard)
        if not run.tier.meets(self.request.minimum_isolation):
            # The worker ran it behind less than it promised: an incident, never a success.
            event(
                logger,
                "incident.below_floor",
                level=logging.CRITICAL,
                run_id=self.row.id,
                tier=run.tier.value,
            )
            raise await self._may_have_run("below_floor")
        recorded = await self._record(replace(run, recorded=True))
        self.reached(KillPoint.AFTER_END_COMMIT)
        return recorded

    def _finished(self, heard: Heard) -> Finished:
        """The run with its record, and only then what its caller is told of its calls, which are over."""
        run = finished(self.row, self.request, self.ticket, heard)
        calls = None if self.lease is None else self.lease.calls()
        return replace(run, advice=None if calls is None else calls.advice_for(operator=False))

    async def _record(self, run: Finished) -> Finished:
        """Write the end, with the answer's bytes when it is kept; if that fails, deliver it all the same and write later."""
        run = self._with_body(run)
        try:
            if not self.evidence.knows(run.evidence_sha256):
                await self.evidence.learn(self.worker, run.evidence_sha256)
            self.reached(KillPoint.BEFORE_END_COMMIT)
            if await self.runs.finish(self.row.id, self._finished_row(run), run.body):
                return run
            event(logger, "run.settled_before_its_end", level=logging.ERROR, run_id=self.row.id)
        except (StoreError, WorkerLost) as error:
            event(
                logger,
                "run.not_recorded",
                level=logging.ERROR,
                run_id=self.row.id,
                cause=type(error).__name__,
            )
            run = self._with_body(replace(run, recorded=False))
            self.settler.later(lambda: self.runs.finish(self.row.id, self._finished_row(run), run.body))
        return self._with_body(replace(run, recorded=False))

    def _finished_row(self, run: Finished) -> FinishedRun:
        return finished_row(self.row, run, self._grant_trace)

    def _with_body(self, run: Finished) -> Finished:
        return replace(run, body=self.render(run)) if self.render else run

    # 4 -----------------------------------------------------------------------------------------------------------
    async def _after_silence(self, cause: str) -> Heard:
        state = await self._ask()
        if state == "gone":
            raise await self._may_have_run(cause)
        if isinstance(state, RunState):
            if state.state in _NEVER_RAN:
                raise await self._not_dispatched(self._unstarted)
            if state.state == "finished" and state.ended and state.accepted:
                return await self._told(state)
            if state.state == "broken":
                raise await self._may_have_run("broken")
        self.settler.watch(self._cancel_quietly())
        self.settler.watch(self._settle_from_worker())
        raise await self._may_have_run(cause, settled=False)

    async def _told(self, state: RunState) -> Heard:
        """What the worker says of a run whose events got lost. Raises Refused when it does not fit the request."""
        try:
            return Heard.from_state(self.request.payload, state)
        except Misfit as misfit:
            raise await self._misfit(misfit) from misfit

    async def _misfit(self, misfit: Misfit) -> Refused:
        """The worker is at fault, and what it ran is not known."""
        event(logger, "incident.misfit", level=logging.ERROR, run_id=self.row.id, cause=misfit.cause)
        return await self._may_have_run(misfit.cause)

    async def _ask(self) -> RunState | Literal["silent", "gone"]:
        """What the same boot says of the run, an unspent ticket voided first; silent: it is there, and may answer yet."""
        try:
            async with asyncio.timeout(_QUERY_S):
                state = await self.worker.query(self.row.id, void=True)
            return state if state.boot_id == self.ticket.boot_id else "gone"
        except (WorkerLost, TimeoutError):
            return "silent" if await self._same_boot() else "gone"

    async def _same_boot(self) -> bool:
        try:
            return (await self.worker.info()).boot_id == self.ticket.boot_id
        except WorkerLost:
            return False

    async def _settle_from_worker(self) -> None:
        """Ask again while the worker can still answer, then let `may_have_run` be final."""
        await self._end_calls()  # this is not the only one who may write the last word
        state: RunState | Literal["silent", "gone"] = "silent"
        for _ in range(_SETTLE_TRIES):
            state = await self._ask()
            if state == "gone" or (isinstance(state, RunState) and state.state != "running"):
                break
            await asyncio.sleep(_SETTLE_PAUSE_S)
        if isinstance(state, RunState) and state.state == "finished" and state.ended and state.accepted:
            self._finish_later(state)
        elif isinstance(state, RunState) and state.state in _NEVER_RAN:
            self._settle_later(State.NOT_DISPATCHED, Reason.ENVIRONMENT)
        else:
            self._settle_later(State.MAY_HAVE_RUN, "unanswered")

    def _finish_later(self, state: RunState) -> None:
        try:
            heard = Heard.from_state(self.request.payload, state)
        except Misfit as misfit:
            self._settle_later(State.MAY_HAVE_RUN, misfit.cause)
            return
        run = self._finished(heard)
        late = self._with_body(replace(run, recorded=True))
        self.settler.later(lambda: self.runs.finish(self.row.id, self._finished_row(late), late.body))

    # 5 -----------------------------------------------------------------------------------------------------------
    async def _may_have_run(self, cause: str, *, settled: bool = True) -> Refused:
        await self._write_or_later(State.MAY_HAVE_RUN, cause, settled=settled)
        return Refused(may_have_run(self.row.id))

    async def _not_dispatched(self, refusal: Refusal) -> Refused:
        reason = refusal.reason or Reason.ENVIRONMENT
        await self._write_or_later(State.NOT_DISPATCHED, reason, settled=True)
        return Refused(replace(refusal, run_id=self.row.id))

    async def _write_or_later(self, state: Unfinished, reason: str, *, settled: bool) -> None:
        await self._end_calls()
        try:
            await self._write(state, reason, settled=settled)
        except StoreError as error:
            event(
                logger, "run.not_settled", level=logging.ERROR, run_id=self.row.id, cause=type(error).__name__
            )
            self._settle_later(state, reason)

    def _fence_later(self, reason: Reason) -> None:
        """The commit may have happened, or happen yet: nothing is started for it, and the row is made to say so."""
        audit = audit_row(self.row, f"run.{State.NOT_DISPATCHED}", self.unix_ms(), reason=reason)
        self.settler.later(lambda: self.runs.fence(self.row, reason, audit))

    def _settle_later(self, state: Unfinished, reason: str) -> None:
        self.settler.later(lambda: self._write(state, reason, settled=True))

    async def _write(self, state: Unfinished, reason: str, *, settled: bool) -> None:
        # The trail has one row a run, written with its last word.
        audit = audit_row(self.row, f"run.{state.value}", self.unix_ms(), reason=reason) if settled else None
        await self.runs.settle(
            self.row.id,
            state=state,
            reason=reason,
            settled=settled,
            audit=audit,
            grant_trace=self._grant_trace,
        )
