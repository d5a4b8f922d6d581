"""Values of ours as the JSON shapes of the contract; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from app.dispatch.admission import Candidate
from app.dispatch.leases import KeptCalls
from app.dispatch.outcome import Finished
from app.store.values import StartingRun, State, StoredEvidence, StoredRun
from plimsoll.contract import codec
from plimsoll.contract.advice import Advice
from plimsoll.contract.content import file_text, stream_text
from plimsoll.contract.leases import CallTrace
from plimsoll.contract.record import RunRecord
from plimsoll.contract.refusals import Reason
from plimsoll.contract.requests import Kind
from plimsoll.contract.rest import (
    AdviceBody,
    ArtifactBody,
    CallBody,
    CallsBody,
    EnvironmentBody,
    EvidenceBody,
    FactBody,
    NotDispatched,
    OutcomeName,
    ProjectResultBody,
    ProviderBody,
    RecordBody,
    ResourcesBody,
    RunAnswer,
    RunView,
    ScriptResultBody,
    StepResultBody,
)
from plimsoll.contract.results import Artifact, Outcome, ProjectResult, ScriptResult, StepResult
from plimsoll.contract.worker import Environment, Health, WorkerInfo

OUTCOMES: Mapping[Outcome, OutcomeName] = {
    Outcome.COMPLETED: "completed",
    Outcome.SETUP_FAILED: "setup_failed",
    Outcome.TIMED_OUT: "timed_out",
    Outcome.PROTOCOL_ERROR: "protocol_error",
    Outcome.RUNNER_FAILED: "runner_failed",
}
"""A run without an outcome has no result."""


def result_body(result: ScriptResult | ProjectResult) -> ScriptResultBody | ProjectResultBody:
    """A result by its kind."""
    return _project_result(result) if isinstance(result, ProjectResult) else _script_result(result)


def _streams(result: ScriptResult | StepResult) -> dict[str, Any]:
    stdout, stdout_encoding = stream_text(result.stdout)
    stderr, stderr_encoding = stream_text(result.stderr)
    return {
        "stdout": stdout,
        "stdout_encoding": stdout_encoding,
        "stdout_truncated": result.stdout_truncated,
        "stderr": stderr,
        "stderr_encoding": stderr_encoding,
        "stderr_truncated": result.stderr_truncated,
    }


def _script_result(result: ScriptResult) -> ScriptResultBody:
    return ScriptResultBody.model_construct(
        kind="python" if result.kind is Kind.PYTHON else "javascript",
        exit_code=result.exit_code,
        timed_out=result.timed_out,
        **_streams(result),
    )


def _project_result(result: ProjectResult) -> ProjectResultBody:
    return ProjectResultBody.model_construct(
        kind="project",
        outcome=OUTCOMES[result.outcome],
        outcome_detail=result.outcome_detail,
        artifacts_truncated=result.artifacts_truncated,
        steps=[_step_result(step) for step in result.steps],
        artifacts=[_artifact(artifact) for artifact in result.artifacts],
    )


def _step_result(step: StepResult) -> StepResultBody:
    return StepResultBody.model_construct(
        command=step.command,
        exit_code=step.exit_code,
        timed_out=step.timed_out,
        duration_ms=step.duration_ms,
        **_streams(step),
    )


def _artifact(artifact: Artifact) -> ArtifactBody:
    content, encoding = file_text(artifact.content)
    return ArtifactBody.model_construct(path=artifact.path, content=content, content_encoding=encoding)


def record_body(record: RunRecord) -> RecordBody:
    """A record."""
    return RecordBody.model_construct(**{name: getattr(record, name) for name in RunRecord.__slots__})


def run_answer(run: Finished) -> RunAnswer:
    """A finished run."""
    return RunAnswer.model_construct(
        id=run.run_id,
        provider=run.provider,
        isolation=run.tier,
        evidence_sha256=run.evidence_sha256,
        environment=run.record.environment,
        software_identity=run.record.software_identity,
        instance=run.accepted.instance,
        duration_ms=run.ended.duration_ms,
        start_ms=run.accepted.start_ms,
        cancelled=run.ended.cancelled,
        oom_killed=run.ended.oom_killed,
        recorded=run.recorded,
        advice=_advice(run.advice),
        result=result_body(run.result),
        record=record_body(run.record),
    )


def _advice(found: tuple[Advice, ...] | None) -> list[AdviceBody] | None:
    return None if found is None else [AdviceBody(**asdict(each)) for each in found]


def run_view(
    run: StoredRun, body: bytes | None = None, trace: str | None = None, *, operator: bool = False
) -> RunView:
    """A run as kept, with its result when `body` is the kept answer, and its calls when `trace` is what was kept of them.

    What was chosen counts only once it can have run. `operator`: also what is for operators alone.
    """
    view: dict[str, Any] = {
        "id": run.id,
        "state": run.state.value,
        "kind": run.kind.value,
        "trace_id": run.trace_id,
        "created_unix_ms": run.created_unix_ms,
        "ended_unix_ms": run.ended_unix_ms,
        "settled": run.settled,
        "grant_profile": run.grant_profile or None,
    }
    if trace is not None:
        calls = codec.loads(KeptCalls, trace.encode())
        view |= {"calls": calls_body(calls), "advice": _advice(calls.advice_for(operator=operator))}
    if run.state is State.NOT_DISPATCHED:
        return RunView(**view, not_dispatched=NotDispatched(reason=Reason(run.reason)))
    view |= {
        "provider": run.provider,
        "isolation": run.tier,
        "evidence_sha256": run.evidence_sha256,
        "environment": run.environment,
        "software_identity": run.software_identity,
    }
    if run.record is None:
        return RunView(**view)
    ended = ("duration_ms", "start_ms", "cancelled", "oom_killed", "exit_code", "timed_out")
    view |= {name: getattr(run, name) for name in ended}
    if body is not None:
        view["result"] = RunAnswer.model_validate_json(body).result
    return RunView(**view, instance=run.record.instance, record=record_body(run.record))


def calls_body(found: CallTrace) -> CallsBody:
    """What is kept of a run's calls."""
    entries = [
        CallBody(
            route=found.routes[each.route],
            status=each.status,
            delivered=each.delivered,
            bytes_back=each.bytes_back,
            ms=each.ms,
        )
        for each in found.entries
    ]
    return CallsBody(
        sent=found.sent,
        delivered=found.delivered,
        bytes_out=found.bytes_out,
        bytes_back=found.bytes_back,
        probes=found.probes,
        failed=dict(found.failed),
        entries=entries,
        left_out=found.left_out,
    )


def live_view(row: StartingRun) -> RunView:
    """A run that was written ahead a moment ago."""
    return RunView(
        id=row.id,
        state="starting",
        kind=row.kind.value,
        trace_id=row.trace_id,
        created_unix_ms=row.created_unix_ms,
        settled=False,
        provider=row.provider,
        isolation=row.tier,
        evidence_sha256=row.evidence_sha256,
        environment=row.environment,
        software_identity=row.software_identity,
        grant_profile=row.grant_profile or None,
    )


def answer_bytes(run: Finished) -> bytes:
    """The exact bytes of a run's answer, kept or not: a member that is not there is left out."""
    return run_answer(run).model_dump_json(exclude_none=True).encode()


def provider_body(candidate: Candidate) -> ProviderBody:
    """A provider as it stands now."""
    info = candidate.info
    if info is None:
        return ProviderBody(
            provider=candidate.provider,
            isolation=candidate.tier,
            health="starting",
            faults=[],
            shortfalls=[],
            evidence_sha256="",
            checked_unix_ms=0,
            slots=0,
            free=0,
            policy="",
            environments=[],
        )
    return ProviderBody(
        provider=candidate.provider,
        isolation=candidate.tier,
        health="starting" if candidate.away else info.health.value,
        faults=list(info.faults),
        shortfalls=list(info.shortfalls),
        evidence_sha256=info.evidence_sha256,
        checked_unix_ms=info.checked_unix_ms,
        slots=info.slots,
        free=0 if candidate.away or info.health is not Health.SERVING else info.free,
        policy=info.policy,
        resources=ResourcesBody(**asdict(info.resources)),
        environments=_environments(info),
    )


def _environments(info: WorkerInfo) -> list[EnvironmentBody]:
    def body(kind: Kind, environment: Environment) -> EnvironmentBody:
        return EnvironmentBody(
            kind=kind.value,
            identity=environment.identity,
            software_identity=environment.software_identity,
            max_timeout_ms=environment.max_timeout_ms,
            languages=list(environment.languages),
        )

    return [body(kind, environment) for kind, environment in sorted(info.environments.items())]


def evidence_body(evidence: StoredEvidence) -> EvidenceBody:
    """Evidence for callers: an allow list of fields, so that a fact added inside is not published by accident."""
    return EvidenceBody(
        sha256=evidence.sha256,
        provider=evidence.provider,
        tier=evidence.tier,
        facts=[
            FactBody(
                name=fact.name,
                value=fact.value,
                source=fact.source,
                observed=fact.observed,
                unix_ms=fact.unix_ms,
                supports=fact.supports,
            )
            for fact in evidence.facts
        ],
    )


def kinds_served(candidates: Iterable[Candidate]) -> list[str]:
    """Kinds that some provider runs."""
    return sorted({kind.value for each in candidates if each.info for kind in each.info.environments})
