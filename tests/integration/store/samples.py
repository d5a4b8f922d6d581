"""Values for the store's tests, and the clock they share."""

import os
from typing import Any

from app.identity import DEFAULT_SCOPES
from app.store.runs import Unfinished
from app.store.store import Store
from app.store.values import AuditRow, CallerToken, FinishedRun, Keep, Key, NewCaller, StartingRun
from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import Kind
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Fact

ALICE = "a1" * 16
BOB = "b0" * 16
DAY_MS = 86_400_000
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


def starting(
    run_id: str, *, caller_id: str = ALICE, created: int = 1_000, trace: str = "", owner: str = ""
) -> StartingRun:
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
        owner=owner,
    )


def keep(key: str | None = None, **changed: Any) -> Keep:
    """An answer to be kept for a day, with room for ten thousand bytes a caller."""
    values: dict[str, Any] = {
        "key": key and Key(key, "f1" * 32),
        "reserve_bytes": 1_000,
        "expires_unix_ms": Clock().now + DAY_MS,
        "caller_quota_bytes": 10_000,
        "total_quota_bytes": 100_000,
    }
    return Keep(**values | changed)


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


async def settle(store: Store, run_id: str, state: Unfinished, *, settled: bool = True) -> bool:
    """Say that the run has no end, finally with its line of the trail."""
    audit = line(run_id, f"run.{state}") if settled else None
    return await store.runs.settle(run_id, state=state, reason="lost", settled=settled, audit=audit)
