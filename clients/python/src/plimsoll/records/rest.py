"""From REST shapes to the contract values that are hashed: one mapping for service, clients and vector files."""

import base64
import binascii

from plimsoll.contract.content import Encoding
from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import (
    File,
    JavaScript,
    Kind,
    Module,
    Payload,
    Project,
    Python,
    RunRequest,
    SoftwareRule,
)
from plimsoll.contract.rest import (
    JavaScriptBody,
    ModuleBody,
    ProjectBody,
    ProjectResultBody,
    PythonBody,
    RecordBody,
    RunBody,
    ScriptResultBody,
    SoftwareRuleBody,
    StepResultBody,
)
from plimsoll.contract.results import Artifact, Outcome, ProjectResult, ScriptResult, StepResult
from plimsoll.contract.tiers import Tier


def request_from_body(body: RunBody) -> RunRequest:
    """The request as sent: a floor or timeout that was not in the body is absent, whatever default the shape has."""
    sent = body.model_fields_set
    return RunRequest(
        payload=_payload(body.payload),
        minimum_isolation=Tier(body.minimum_isolation) if "minimum_isolation" in sent else None,
        timeout_ms=body.timeout_ms if "timeout_ms" in sent else 0,
        software_rule=_rule(body.software_rule),
        trace_id=body.trace_id or "",
    )


def _rule(rule: SoftwareRuleBody | None) -> SoftwareRule | None:
    return SoftwareRule(rule.mode, tuple(rule.identities)) if rule else None


def _payload(payload: JavaScriptBody | PythonBody | ProjectBody | ModuleBody) -> Payload:
    match payload:
        case JavaScriptBody():
            return JavaScript(payload.code, payload.grant_profile or "")
        case PythonBody():
            return Python(payload.code, payload.grant_profile or "")
        case ProjectBody():
            files = tuple(File(file.path, file.bytes()) for file in payload.files)
            steps, artifacts = tuple(payload.steps), tuple(payload.artifacts)
            return Project(files, steps, artifacts, payload.grant_profile or "")
        case ModuleBody():
            rows = tuple(tuple(row.values) for row in payload.rows)
            return Module(payload.model, rows, payload.end_time, payload.step)


def result_from_body(body: ScriptResultBody | ProjectResultBody) -> ScriptResult | ProjectResult:
    """A result with output and artifacts as bytes. Raises ValueError when one is not in its stated encoding."""
    if isinstance(body, ProjectResultBody):
        return ProjectResult(
            outcome=Outcome[body.outcome.upper()],
            outcome_detail=body.outcome_detail,
            artifacts_truncated=body.artifacts_truncated,
            steps=tuple(map(_step, body.steps)),
            artifacts=tuple(
                Artifact(each.path, stream_bytes(each.content, each.content_encoding))
                for each in body.artifacts
            ),
        )
    return ScriptResult(
        kind=Kind(body.kind),
        exit_code=body.exit_code,
        timed_out=body.timed_out,
        stdout=stream_bytes(body.stdout, body.stdout_encoding),
        stderr=stream_bytes(body.stderr, body.stderr_encoding),
        stdout_truncated=body.stdout_truncated,
        stderr_truncated=body.stderr_truncated,
    )


def _step(body: StepResultBody) -> StepResult:
    return StepResult(
        command=body.command,
        exit_code=body.exit_code,
        timed_out=body.timed_out,
        stdout=stream_bytes(body.stdout, body.stdout_encoding),
        stderr=stream_bytes(body.stderr, body.stderr_encoding),
        stdout_truncated=body.stdout_truncated,
        stderr_truncated=body.stderr_truncated,
        duration_ms=body.duration_ms,
    )


def stream_bytes(text: str, encoding: Encoding) -> bytes:
    """The bytes of one stream or file. Raises ValueError unless `text` is valid, for base64 also canonical."""
    if encoding == "utf-8":
        return text.encode()
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("must be base64") from None
    if base64.b64encode(data).decode() != text:
        raise ValueError("must be canonical base64")
    return data


def record_from_body(body: RecordBody) -> RunRecord:
    """The record as received, its own digest included."""
    return RunRecord(**body.model_dump())
