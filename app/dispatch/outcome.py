"""What one run came to, as values; pure. Building them decides nothing that the worker has not said."""

from dataclasses import dataclass, field

from app.dispatch.heard import Heard
from app.store.values import AuditRow, FinishedRun, StartingRun
from plimsoll.contract.advice import Advice
from plimsoll.contract.record import RunRecord
from plimsoll.contract.refusals import Code, Refusal
from plimsoll.contract.requests import Cell, JavaScript, Module, Project, Python, RunRequest
from plimsoll.contract.results import ProjectResult, ScriptResult, StepResult
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Accepted, Ended, Ticket
from plimsoll.records import Stated, make_record


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished run, ready to be answered. `recorded` false: its end could not be written yet.

    `advice` is what its caller is told of its calls, None: nothing. `body` holds the exact bytes of the answer when it is kept.
    """

    run_id: str
    provider: str
    tier: Tier
    evidence_sha256: str
    accepted: Accepted
    ended: Ended
    result: ScriptResult | ProjectResult
    record: RunRecord
    recorded: bool
    advice: tuple[Advice, ...] | None = None
    body: bytes | None = field(default=None, repr=False)


def finished(row: StartingRun, request: RunRequest, ticket: Ticket, heard: Heard) -> Finished:
    """The finished run of `row`, its record sealed. `heard` must hold `accepted` and `ended`."""
    accepted, ended = heard.accepted, heard.ended
    if accepted is None or ended is None:
        raise ValueError("a run without its end is not finished")
    result = heard.result()
    # The end says the weakest wall that the worker saw from the start on; what it promised before can only be less.
    tier = accepted.tier.at_most(ended.tier).at_most(ticket.tier)
    stated = Stated(row.provider, tier.value, ticket.environment, ticket.software_identity, accepted.instance)
    record = make_record(
        request,
        result,
        stated,
        policy=ticket.policy,
        started_unix_ms=accepted.unix_ms,
        ended_unix_ms=ended.unix_ms,
        request_sha256=row.request_sha256,
    )
    return Finished(
        row.id,
        row.provider,
        tier,
        ended.evidence_sha256,
        accepted,
        ended,
        result,
        record,
        recorded=False,
    )


def finished_row(row: StartingRun, run: Finished, grant_trace: str | None = None) -> FinishedRun:
    """What the store keeps of a finished run, and of its calls."""
    ended = run.ended
    return FinishedRun(
        record=run.record,
        exit_code=ended.exit_code,
        timed_out=ended.timed_out,
        oom_killed=ended.oom_killed,
        cancelled=ended.cancelled,
        duration_ms=ended.duration_ms,
        start_ms=run.accepted.start_ms,
        stdout_bytes=sum(len(each.stdout) for each in printed(run.result)),
        stderr_bytes=sum(len(each.stderr) for each in printed(run.result)),
        stdout_truncated=any(each.stdout_truncated for each in printed(run.result)),
        stderr_truncated=any(each.stderr_truncated for each in printed(run.result)),
        evidence_sha256=run.evidence_sha256,
        tier=run.tier,
        ended_unix_ms=ended.unix_ms,
        audit=audit_row(row, "run.finished", ended.unix_ms, run=run),
        grant_trace=grant_trace,
    )


def printed(result: ScriptResult | ProjectResult) -> tuple[ScriptResult | StepResult, ...]:
    """Whatever has output: a snippet itself, or each step of a project."""
    return result.steps if isinstance(result, ProjectResult) else (result,)


def audit_row(
    row: StartingRun, event: str, unix_ms: int, *, reason: str = "", run: Finished | None = None
) -> AuditRow:
    """The one audit row of a run, written with its end."""
    return AuditRow(
        unix_ms=unix_ms,
        event=event,
        caller_id=row.caller_id,
        run_id=row.id,
        kind=row.kind.value,
        floor=row.floor,
        provider=row.provider,
        tier=(run.tier if run else row.tier).value,
        request_sha256=row.request_sha256,
        reason=reason,
        exit_code=run.ended.exit_code if run else None,
        duration_ms=run.ended.duration_ms if run else None,
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


def may_have_run(run_id: str) -> Refusal:
    """The answer to a run whose end is not known."""
    detail = "The run was started and its end is not known; it may have run."
    return Refusal(Code.MAY_HAVE_RUN, detail, run_id=run_id)
