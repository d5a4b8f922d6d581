"""From an authenticated request to its finished run: admission, choice of worker, reservation, then one attempt.

Nothing here waits for another run. Everything before the attempt's `start` is provably not dispatched.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from app.dispatch.admission import DRAINING, UNAVAILABLE, Candidate, ceiling_of, choose
from app.dispatch.attempt import DATABASE_DOWN, Attempt, Cancel, Render, Runs
from app.dispatch.audit import Say, audited
from app.dispatch.evidence import EvidenceKeeper
from app.dispatch.killpoints import KillPoint, Reached, pass_by
from app.dispatch.leases import Grants, Held, profile_name
from app.dispatch.link import GRACE_S
from app.dispatch.outcome import Finished, payload_bytes
from app.dispatch.quota import Quota
from app.dispatch.settler import Settler
from app.identity import Caller, Scope
from app.store.values import Keep, StartingRun, StoredGrant, StoreError
from plimsoll.contract import bounds
from plimsoll.contract.refusals import Code, Reason, Refusal, Refused
from plimsoll.contract.requests import RunRequest
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Job, Spec, Ticket, Worker, WorkerInfo, WorkerLost
from plimsoll.records import request_digest

DISK_FULL = Refusal(
    Code.CAPACITY, "The disk of the service is nearly full.", Reason.CAPACITY, retry_after_s=60
)
NOT_PERMITTED = Refusal(Code.PERMISSION_DENIED, "This token may not run code.", Reason.PERMISSION)


class Member(Protocol):
    """One configured provider: its worker, and what is known of it without asking."""

    @property
    def provider(self) -> str: ...
    @property
    def worker(self) -> Worker: ...
    @property
    def latest(self) -> WorkerInfo | None: ...
    @property
    def away(self) -> bool: ...
    @property
    def evidence_ended(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a dispatcher takes from outside: clock in Unix milliseconds, fresh run ids, the crash tests' callback.

    `disk_full` says whether the database's file system has no room left; `owner` is this replica's id, on its runs' rows.
    """

    unix_ms: Callable[[], int]
    new_run_id: Callable[[], str]
    reached: Reached = pass_by
    ceilings: Callable[[str], Tier] = ceiling_of
    disk_full: Callable[[], bool] = lambda: False
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Wish:
    """How a caller wants its run: output as it comes; its answer kept, with the exact bytes that `render` gives."""

    request_id: str = ""
    stream: bool = False
    keep: Keep | None = None
    render: Render | None = None


PLAIN = Wish()


@dataclass(frozen=True, slots=True)
class Live:
    """A run that was written ahead and goes its way, whoever listens."""

    run_id: str
    attempt: Attempt
    task: "asyncio.Task[Finished | Refusal]"
    reached: Reached

    async def end(self) -> Finished:
        """Its end. Raises Refused. A listener that is cancelled does not cancel the run."""
        end = await asyncio.shield(self.task)
        if isinstance(end, Refusal):
            raise Refused(end)
        self.reached(KillPoint.BEFORE_ANSWER)
        return end


async def _follow(attempt: Attempt, held: ExitStack, say: Say) -> Finished | Refusal:
    """Follow one run to its end and give back what it held. A refusal is a value here: nobody may be listening."""
    end: Finished | Refusal
    with held:
        try:
            end = await attempt.follow()
        except Refused as refused:
            end = refused.refusal
    say(end, attempt.lease)
    return end


class Dispatcher:
    """Runs requests on `members` in their order of preference. Owns no process and no connection."""

    def __init__(
        self,
        members: Sequence[Member],
        *,
        runs: Runs,
        evidence: EvidenceKeeper,
        quota: Quota,
        settler: Settler,
        output_bytes: int,
        around: Surroundings,
        grants: Grants,
    ) -> None:
        self._members = tuple(members)
        self._grants = grants
        self._runs = runs
        self._evidence = evidence
        self._quota = quota
        self._settler = settler
        self._output_bytes = output_bytes
        self._around = around
        self._draining = False
        self._cancels: dict[str, Cancel] = {}
        self._tasks: set[asyncio.Task[Finished | Refusal]] = set()

    @property
    def members(self) -> tuple[Member, ...]:
        """The configured providers, in order."""
        return self._members

    @property
    def running(self) -> int:
        """Runs between admission and answer."""
        return self._quota.running

    @property
    def draining(self) -> bool:
        """Whether new runs are refused because the service is ending."""
        return self._draining

    def candidates(self) -> tuple[Candidate, ...]:
        """The members as admission sees them now."""
        return tuple(
            Candidate(
                each.provider,
                self._around.ceilings(each.provider),
                each.latest,
                each.away,
                pending=not each.evidence_ended,
            )
            for each in self._members
        )

    def drain(self) -> None:
        """Take no new run from now on."""
        self._draining = True

    def cancel_all(self) -> None:
        """Ask every running run to end; each answers as cancelled."""
        for cancel in list(self._cancels.values()):
            cancel.request()

    async def run(
        self, caller: Caller, request: RunRequest, cancel: Cancel, request_id: str = ""
    ) -> Finished:
        """Run it once, here, now, for a caller that waits. Raises Refused."""
        return await (await self.begin(caller, request, cancel, Wish(request_id))).end()

    async def begin(self, caller: Caller, request: RunRequest, cancel: Cancel, wish: Wish = PLAIN) -> "Live":
        """Admit, reserve and write ahead; from then on the run goes its way in a task of ours. Raises Refused, KeyTaken."""
        say = audited(caller, request, wish.request_id)
        try:
            return await self._begin(caller, request, cancel, wish, say)
        except Refused as refused:
            say(refused.refusal, None)
            raise

    async def check(self, caller: Caller, request: RunRequest, request_id: str) -> None:
        """Whether the caller may run code, and with the grant it names. Raises Refused."""
        try:
            await self._permitted(caller, request)
        except Refused as refused:
            audited(caller, request, request_id)(refused.refusal, None)
            raise

    async def _permitted(self, caller: Caller, request: RunRequest) -> StoredGrant | None:
        if not caller.may(Scope.RUN):
            raise Refused(NOT_PERMITTED)
        return await self._grants.permitted(caller, request)

    async def _begin(
        self, caller: Caller, request: RunRequest, cancel: Cancel, wish: Wish, say: Say
    ) -> "Live":
        grant = await self._permitted(caller, request)
        chosen = self._admit(request)
        with ExitStack() as held:
            held.enter_context(self._quota.enter(caller.id))
            run_id = self._around.new_run_id()
            self._cancels[run_id] = cancel
            held.callback(self._cancels.pop, run_id)
            attempt = await self._prepare(run_id, caller, request, cancel, chosen, wish)
            if grant is not None:
                await attempt.hold(self._lease(attempt, grant, caller))
            await attempt.write_ahead()
            task = asyncio.create_task(_follow(attempt, held.pop_all(), say), name=f"run-{run_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return Live(run_id, attempt, task, self._around.reached)

    def cancel(self, run_id: str) -> bool:
        """Ask a run of this replica to end; False when it is not running here."""
        cancel = self._cancels.get(run_id)
        if cancel:
            cancel.request()
        return cancel is not None

    @contextmanager
    def waiting(self, caller: Caller) -> Iterator[None]:
        """Count a caller that only waits (a long poll) in its concurrency. Raises Refused (`capacity`)."""
        with self._quota.wait(caller.id):
            yield

    async def __aenter__(self) -> Self:
        """Nothing runs yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the tasks that are left; their rows stay `starting`, and the next start tells what that means."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _lease(self, attempt: Attempt, grant: StoredGrant, caller: Caller) -> Awaitable[Held]:
        """A lease for the worker whose ticket the attempt has: a worker that is started anew is another."""
        worker = f"{attempt.ticket.provider}/{attempt.ticket.boot_id}"
        budget_s = attempt.job.timeout_ms / 1000 + GRACE_S
        return self._grants.lease(grant, caller, attempt.row.id, worker, budget_s)

    def _admit(self, request: RunRequest) -> tuple[Candidate, ...]:
        if self._draining:
            raise Refused(DRAINING)
        if self._around.disk_full():
            raise Refused(DISK_FULL)
        chosen = choose(self.candidates(), request, broker=self._grants.served)
        if isinstance(chosen, Refusal):
            raise Refused(chosen)
        return chosen

    async def _prepare(
        self,
        run_id: str,
        caller: Caller,
        request: RunRequest,
        cancel: Cancel,
        chosen: Iterable[Candidate],
        wish: Wish,
    ) -> Attempt:
        timeout_ms = request.timeout_ms or bounds.TIMEOUT_DEFAULT_MS
        spec = self._spec(run_id, caller, request, timeout_ms)
        self._around.reached(KillPoint.BEFORE_RESERVE)
        member, ticket = await self._reserve(spec, [each.provider for each in chosen])
        self._around.reached(KillPoint.AFTER_RESERVE)
        return Attempt(
            row=self._row(run_id, caller, request, member, ticket),
            request=request,
            job=Job(run_id, request.payload, timeout_ms, self._output_bytes, stream=wish.stream),
            ticket=ticket,
            worker=member.worker,
            runs=self._runs,
            settler=self._settler,
            cancel=cancel,
            unix_ms=self._around.unix_ms,
            reached=self._around.reached,
            evidence=self._evidence,
            keep=wish.keep,
            render=wish.render,
        )

    async def _reserve(self, spec: Spec, names: Sequence[str]) -> tuple[Member, Ticket]:
        """A ticket from the first member that gives one; when none does, why not: full comes before anything else."""
        refusal = UNAVAILABLE
        for member in (each for name in names for each in self._members if each.provider == name):
            try:
                given = await member.worker.reserve(spec)
            except WorkerLost:
                continue
            if isinstance(given, Refusal):
                refusal = refusal if refusal.reason is Reason.CAPACITY else given
            elif given.tier.meets(spec.floor):
                await self._prove(member.worker, given)
                return member, given
        raise Refused(refusal)

    async def _prove(self, worker: Worker, ticket: Ticket) -> None:
        """Have the ticket's evidence stored before anything can refer to it."""
        if self._evidence.knows(ticket.evidence_sha256):
            return
        try:
            await self._evidence.learn(worker)
        except StoreError as error:
            raise Refused(DATABASE_DOWN) from error
        except WorkerLost as error:
            raise Refused(UNAVAILABLE) from error

    def _spec(self, run_id: str, caller: Caller, request: RunRequest, timeout_ms: int) -> Spec:
        # The tag is equal for one caller's runs and says nothing of who that is.
        tenant = hashlib.sha256(b"plimsoll tenant v1\n" + caller.id.encode()).hexdigest()[:32]
        return Spec(
            run_id,
            tenant,
            request.payload.kind,
            request.minimum_isolation,
            timeout_ms,
            self._output_bytes,
            request.software_rule,
        )

    def _row(
        self, run_id: str, caller: Caller, request: RunRequest, member: Member, ticket: Ticket
    ) -> StartingRun:
        return StartingRun(
            id=run_id,
            caller_id=caller.id,
            kind=request.payload.kind,
            floor=request.minimum_isolation.value if request.minimum_isolation else "",
            provider=member.provider,
            tier=ticket.tier,
            boot_id=ticket.boot_id,
            trace_id=request.trace_id,
            request_sha256=request_digest(request),
            evidence_sha256=ticket.evidence_sha256,
            environment=ticket.environment,
            software_identity=ticket.software_identity,
            code_bytes=payload_bytes(request),
            created_unix_ms=self._around.unix_ms(),
            owner=self._around.owner,
            grant_profile=profile_name(request),
        )
