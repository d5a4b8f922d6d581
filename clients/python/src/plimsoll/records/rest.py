"""From REST shapes to the contract values that are hashed: one mapping for service, clients and vector files."""

import base64
import binascii

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
    Encoding,
    JavaScriptBody,
    ModuleBody,
    ProjectBody,
    PythonBody,
    RecordBody,
    RunBody,
    ScriptResultBody,
    SoftwareRuleBody,
)
from plimsoll.contract.results import ScriptResult
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


def result_from_body(body: ScriptResultBody) -> ScriptResult:
    """A snippet's result with its output as bytes. Raises ValueError when a stream is not in its stated encoding."""
    return ScriptResult(
        kind=Kind(body.kind),
        exit_code=body.exit_code,
        timed_out=body.timed_out,
        stdout=stream_bytes(body.stdout, body.stdout_encoding),
        stderr=stream_bytes(body.stderr, body.stderr_encoding),
        stdout_truncated=body.stdout_truncated,
        stderr_truncated=body.stderr_truncated,
    )


def stream_bytes(text: str, encoding: Encoding) -> bytes:
    """The bytes of one stream. Raises ValueError unless `text` is valid, for base64 also canonical."""
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
