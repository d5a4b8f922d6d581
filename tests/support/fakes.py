"""Fakes of the dispatcher's seams, short enough to read: a scripted worker, a store in memory, a clock that is told."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.dispatch.brokerlink import BrokerDown
from app.dispatch.dispatcher import Dispatcher, Surroundings
from app.dispatch.evidence import EvidenceKeeper
from app.dispatch.killpoints import KillPoint
from app.dispatch.leases import Grants
from app.dispatch.outcome import Finished
from app.dispatch.quota import Quota
from app.dispatch.settler import Settler
from app.identity import Caller
from app.store.values import AuditRow, FinishedRun, Keep, StartingRun, State, StoredGrant
from plimsoll.contract.leases import CallTrace, Closed, Registered, Registration
from plimsoll.contract.refusals import Refusal
from plimsoll.contract.requests import JavaScript, Kind, RunRequest
from plimsoll.contract.results import ScriptResult
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import (
    Accepted,
    Ended,
    Environment,
    Event,
    Fact,
    Health,
    Job,
    Out,
    Resources,
    RunState,
    Spec,
    Ticket,
    WorkerInfo,
)

BOOT = "b" * 32
EVIDENCE = "e" * 64
CALLER = Caller(id="c" * 32, name="tester")
NOW_MS = 1_790_000_000_000


def info(**changes: Any) -> WorkerInfo:
    """A serving worker of tier `process` that runs JavaScript."""
    values: dict[str, Any] = {
        "boot_id": BOOT,
        "provider": "wasm",
        "tier": Tier.PROCESS,
        "health": Health.SERVING,
        "facts": (Fact("fact", "yes", "test", "by saying so", NOW_MS, Tier.PROCESS),),
        "evidence_sha256": EVIDENCE,
        "checked_unix_ms": NOW_MS,
        "slots": 4,
        "free": 4,
        "environments": {Kind.JAVASCRIPT: Environment("guest:1", "software:1", 300_000, ("javascript",))},
        "policy": "policy:1",
        "resources": Resources(memory_mb=64),
    }
    return WorkerInfo(**(values | changes))


def accepted(**changes: Any) -> Accepted:
    """The usual acceptance."""
    values: dict[str, Any] = {
        "instance": "wasm-vm:" + "1" * 32,
        "tier": Tier.PROCESS,
        "evidence_sha256": EVIDENCE,
        "unix_ms": NOW_MS,
    }
    return Accepted(**(values | changes))


def ended(**changes: Any) -> Ended:
    """The usual end."""
    values: dict[str, Any] = {
        "exit_code": 0,
        "unix_ms": NOW_MS + 5,
        "duration_ms": 5,
        "tier": Tier.PROCESS,
        "evidence_sha256": EVIDENCE,
    }
    return Ended(**(values | changes))


def script_of(run: Finished) -> ScriptResult:
    """The result of what must be a snippet."""
    assert isinstance(run.result, ScriptResult)
    return run.result


Script = Sequence[Event | Exception | float]
"""What a worker says of a run; a number is a pause, in seconds."""
HELLO: Script = (accepted(), Out("stdout", b"hello\n"), ended())


@dataclass
class FakeWorker:
    """Says what it is told to: a script of events for `start`, an answer for `query`, a refusal for `reserve`."""

    script: Script = HELLO
    now: WorkerInfo = field(default_factory=info)
    refusal: Refusal | Exception | None = None
    state: RunState | Exception | None = None
    calls: list[str] = field(default_factory=list)

    async def info(self) -> WorkerInfo:
        return self.now

    async def reserve(self, spec: Spec) -> Ticket | Refusal:
        self.calls.append("reserve")
        if isinstance(self.refusal, Exception):
            raise self.refusal
        return self.refusal or Ticket(
            run_id=spec.run_id,
            secret="s" * 32,
            boot_id=self.now.boot_id,
            provider=self.now.provider,
            tier=self.now.tier,
            floor=spec.floor,
            evidence_sha256=self.now.evidence_sha256,
            environment="guest:1",
            software_identity="software:1",
            policy=self.now.policy,
        )

    async def start(self, ticket: Ticket, job: Job) -> AsyncIterator[Event]:
        self.calls.append("start")
        for each in self.script:
            if isinstance(each, Exception):
                raise each
            if isinstance(each, float):
                await asyncio.sleep(each)
            else:
                yield each

    async def query(self, run_id: str, *, void: bool) -> RunState:
        self.calls.append("void" if void else "query")
        if isinstance(self.state, Exception):
            raise self.state
        return self.state or RunState(run_id, BOOT, "void")

    async def cancel(self, run_id: str) -> None:
        self.calls.append("cancel")


@dataclass
class FakeMember:
    """A fleet of one."""

    worker: FakeWorker = field(default_factory=FakeWorker)
    provider: str = "wasm"
    away: bool = False
    evidence_ended: bool = True

    @property
    def latest(self) -> WorkerInfo | None:
        return self.worker.now


@dataclass
class FakeRuns:
    """Rows in memory, with the conditional updates of the real ones, and failures on demand."""

    rows: dict[str, State] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    ends: dict[str, FinishedRun] = field(default_factory=dict)
    audits: list[AuditRow] = field(default_factory=list)
    fail: dict[str, Exception] = field(default_factory=dict)

    def _fail(self, where: str) -> None:
        if error := self.fail.pop(where, None):
            raise error

    async def insert_starting(self, run: StartingRun, keep: Keep | None = None) -> None:
        self._fail("insert")
        self.rows[run.id] = State.STARTING

    async def finish(self, run_id: str, end: FinishedRun, body: bytes | None = None) -> bool:
        self._fail("finish")
        if self.rows.get(run_id) not in {State.STARTING, State.MAY_HAVE_RUN}:
            return False
        self.rows[run_id] = State.FINISHED
        self.ends[run_id] = end
        self.audits.append(end.audit)
        return True

    async def settle(
        self,
        run_id: str,
        *,
        state: State,
        reason: str,
        settled: bool,
        audit: AuditRow | None,
        grant_trace: str | None = None,
    ) -> bool:
        self._fail("settle")
        if self.rows.get(run_id) not in {State.STARTING, State.MAY_HAVE_RUN}:
            return False
        self.rows[run_id] = state
        self.reasons[run_id] = reason
        if audit:
            self.audits.append(audit)
        return True

    async def fence(self, run: StartingRun, reason: str, audit: AuditRow) -> bool:
        self._fail("fence")
        self.rows.setdefault(run.id, State.STARTING)
        return await self.settle(run.id, state=State.NOT_DISPATCHED, reason=reason, settled=True, audit=audit)


@dataclass
class FakeEvidence:
    """Evidence in memory."""

    kept: dict[str, Sequence[Fact]] = field(default_factory=dict)
    fail: Exception | None = None

    async def put(self, sha256: str, provider: str, tier: Tier, facts: Sequence[Fact]) -> None:
        if self.fail:
            raise self.fail
        self.kept[sha256] = facts


@dataclass
class FakeProfiles:
    """Grant profiles in memory."""

    kept: dict[str, StoredGrant] = field(default_factory=dict)
    fail: Exception | None = None

    async def get(self, name: str, caller: str) -> StoredGrant | None:
        if self.fail:
            raise self.fail
        found = self.kept.get(name)
        return found if found and caller in found.profile.allowed_callers else None


@dataclass
class FakeBroker:
    """A broker that gives leases, or the fault it is told; `down` makes it answer nothing."""

    fault: str = ""
    down: set[str] = field(default_factory=set)
    open: dict[str, Registration] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    asked: list[Registration] = field(default_factory=list)
    trace: CallTrace | None = field(default_factory=lambda: CallTrace(sent=2, delivered=1))
    url: str = "unix:///nowhere"

    async def register(self, asked: Registration) -> Registered:
        self.log.append("register")
        self.asked.append(asked)
        if "register" in self.down:
            raise BrokerDown("down")
        if self.fault:
            return Registered(fault=self.fault)
        self.open[asked.run_id] = asked
        return Registered(secret="5" * 64)

    async def close(self, run_id: str) -> Closed:
        self.log.append("close")
        if "close" in self.down:
            raise BrokerDown("down")
        return Closed(self.trace if self.open.pop(run_id, None) else None)


@dataclass
class Bench:
    """A dispatcher over fakes. Use inside `async with Settler() as settler`."""

    settler: Settler
    members: list[FakeMember] = field(default_factory=lambda: [FakeMember()])
    runs: FakeRuns = field(default_factory=FakeRuns)
    evidence: FakeEvidence = field(default_factory=FakeEvidence)
    rate_per_min: int = 0
    per_caller: int = 32
    total: int = 64
    passed: list[KillPoint] = field(default_factory=list)
    now_s: float = 0.0
    profiles: FakeProfiles = field(default_factory=FakeProfiles)
    broker: FakeBroker | None = None

    def dispatcher(self) -> Dispatcher:
        ids = iter(f"{number:032x}" for number in range(1, 1 << 20))
        return Dispatcher(
            self.members,
            runs=self.runs,
            evidence=EvidenceKeeper(self.evidence),
            quota=Quota(
                rate_per_min=self.rate_per_min,
                per_caller=self.per_caller,
                total=self.total,
                clock=lambda: self.now_s,
            ),
            settler=self.settler,
            output_bytes=65536,
            around=Surroundings(lambda: NOW_MS, lambda: next(ids), self.passed.append),
            grants=Grants(self.profiles, self.broker),
        )


def javascript(code: str = "1", **changes: Any) -> RunRequest:
    """A request to run `code`."""
    return RunRequest(JavaScript(code), **changes)
