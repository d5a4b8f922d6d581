"""From an authenticated request to its finished run: admission, choice of worker, reservation, then one attempt.

Nothing here waits for another run. Everything before the attempt's `start` is provably not dispatched.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.dispatch.admission import CEILINGS, DRAINING, UNAVAILABLE, Candidate, choose
from app.dispatch.attempt import DATABASE_DOWN, Attempt, Cancel, Runs
from app.dispatch.evidence import EvidenceKeeper
from app.dispatch.killpoints import KillPoint, Reached, pass_by
from app.dispatch.outcome import Finished
from app.dispatch.quota import Quota
from app.dispatch.settler import Settler
from app.identity import Caller, Scope
from app.store.values import StartingRun, StoreError
from plimsoll.contract import bounds
from plimsoll.contract.refusals import Code, Reason, Refusal, Refused
from plimsoll.contract.requests import Cell, JavaScript, Module, Project, Python, RunRequest
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Job, Spec, Ticket, Worker, WorkerInfo, WorkerLost
from plimsoll.records import request_digest

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


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a dispatcher takes from outside: clock in Unix milliseconds, fresh run ids, the crash tests' callback."""

    unix_ms: Callable[[], int]
    new_run_id: Callable[[], str]
    reached: Reached = pass_by
    ceilings: Callable[[str], Tier] = lambda provider: CEILINGS.get(provider, Tier.NONE)


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
    ) -> None:
        self._members = tuple(members)
        self._runs = runs
        self._evidence = evidence
        self._quota = quota
        self._settler = settler
        self._output_bytes = output_bytes
        self._around = around
        self._draining = False
        self._cancels: dict[str, Cancel] = {}

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
            Candidate(each.provider, self._around.ceilings(each.provider), each.latest, each.away)
            for each in self._members
        )

    def drain(self) -> None:
        """Take no new run from now on."""
        self._draining = True

    def cancel_all(self) -> None:
        """Ask every running run to end; each answers as cancelled."""
        for cancel in list(self._cancels.values()):
            cancel.request()

    async def run(self, caller: Caller, request: RunRequest, cancel: Cancel) -> Finished:
        """Run it once, here, now. Raises Refused."""
        if not caller.may(Scope.RUN):
            raise Refused(NOT_PERMITTED)
        if self._draining:
            raise Refused(DRAINING)
        chosen = choose(self.candidates(), request)
        if isinstance(chosen, Refusal):
            raise Refused(chosen)
        with self._quota.enter(caller.id):
            run_id = self._around.new_run_id()
            self._cancels[run_id] = cancel
            try:
                return await self._run(run_id, caller, request, cancel, chosen)
            finally:
                del self._cancels[run_id]

    async def _run(
        self, run_id: str, caller: Caller, request: RunRequest, cancel: Cancel, chosen: Iterable[Candidate]
    ) -> Finished:
        timeout_ms = request.timeout_ms or bounds.TIMEOUT_DEFAULT_MS
        spec = self._spec(run_id, caller, request, timeout_ms)
        self._around.reached(KillPoint.BEFORE_RESERVE)
        member, ticket = await self._reserve(spec, [each.provider for each in chosen])
        self._around.reached(KillPoint.AFTER_RESERVE)
        attempt = Attempt(
            row=self._row(run_id, caller, request, member, ticket),
            request=request,
            job=Job(run_id, request.payload, timeout_ms, self._output_bytes),
            ticket=ticket,
            worker=member.worker,
            runs=self._runs,
            settler=self._settler,
            cancel=cancel,
            unix_ms=self._around.unix_ms,
            reached=self._around.reached,
            evidence=self._evidence,
        )
        run = await attempt.go()
        self._around.reached(KillPoint.BEFORE_ANSWER)
        return run

    async def _reserve(self, spec: Spec, names: Sequence[str]) -> tuple[Member, Ticket]:
        """A ticket from the first member that gives one; the last refusal when none does."""
        refusal = UNAVAILABLE
        for member in (each for name in names for each in self._members if each.provider == name):
            try:
                given = await member.worker.reserve(spec)
            except WorkerLost:
                continue
            if isinstance(given, Refusal):
                refusal = given
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
        )


def payload_bytes(request: RunRequest) -> int:
    """Bytes of source and files in a request."""
    match request.payload:
        case JavaScript(code=code) | Python(code=code):
            return len(code.encode())
        case Cell(code=code, files=files):
            return len(code.encode()) + sum(len(file.content) for file in files)
        case Project(files=files, steps=steps):
            return sum(len(file.content) for file in files) + sum(len(step.encode()) for step in steps)
        case Module(rows=rows):
            return 8 * sum(len(row) for row in rows)
