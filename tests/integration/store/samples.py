"""Values for the store's tests, and the clock they share."""

import os

from app.identity import DEFAULT_SCOPES
from app.store.values import AuditRow, CallerToken, FinishedRun, NewCaller, StartingRun
from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import Kind
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Fact

ALICE = "a1" * 16
BOB = "b0" * 16
EVIDENCE = "ee" * 32
FACTS = (Fact("seccomp", "filter", "runner", "read /proc/self/status", 1_700_000_000_000, Tier.PROCESS),)


class Clock:
    """Unix milliseconds that a test moves by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now


def new_id() -> str:
    return os.urandom(16).hex()


def starting(run_id: str, *, caller_id: str = ALICE, created: int = 1_000, trace: str = "") -> StartingRun:
    return StartingRun(
        id=run_id,
        caller_id=caller_id,
        kind=Kind.JAVASCRIPT,
        floor="process",
        provider="wasm",
        tier=Tier.PROCESS,
        boot_id="b007" * 8,
        trace_id=trace,
        request_sha256="aa" * 32,
        evidence_sha256=EVIDENCE,
        environment="sha256:" + "ff" * 32,
        software_identity="quickjs@2025",
        code_bytes=12,
        created_unix_ms=created,
    )


def line(run_id: str, event: str = "run.finished", *, at: int = 2_000) -> AuditRow:
    return AuditRow(at, event, ALICE, run_id, "javascript", "process", "wasm", "process", "aa" * 32, "", 3, 7)


def record(run_id: str) -> RunRecord:
    return RunRecord(
        request_sha256="aa" * 32,
        result_sha256="bb" * 32,
        provider="wasm",
        isolation="process",
        environment="sha256:" + "ff" * 32,
        policy="wasm-1",
        software_identity="quickjs@2025",
        instance=f"wasm-vm:{run_id}",
        started_unix_ms=1_500,
        ended_unix_ms=2_000,
        record_sha256=run_id * 2,
    )


def finished(run_id: str, *, ended: int = 2_000) -> FinishedRun:
    return FinishedRun(
        record=record(run_id),
        exit_code=3,
        timed_out=False,
        oom_killed=False,
        cancelled=True,
        duration_ms=7,
        start_ms=1,
        stdout_bytes=10,
        stderr_bytes=0,
        stdout_truncated=True,
        stderr_truncated=False,
        evidence_sha256="e2" * 32,
        tier=Tier.PROCESS,
        ended_unix_ms=ended,
        audit=line(run_id, at=ended),
    )


def caller(name: str = "alice", *tokens: CallerToken, caller_id: str | None = None) -> NewCaller:
    return NewCaller(caller_id or new_id(), name, DEFAULT_SCOPES, tokens)


def token(text: str, expires: int | None = None) -> CallerToken:
    return CallerToken(text * 32, expires)
