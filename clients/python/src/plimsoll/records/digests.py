"""The digests of docs/run-records.md over contract values.

The field lists below are published: existing programs that check records recompute them, so no name, no order and no
domain may ever change. A new kind gets a new list, with vectors of its own.
"""

import hashlib
import hmac

from plimsoll.contract.encoding import Digest, float_bytes
from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import (
    Cell,
    File,
    JavaScript,
    Module,
    Payload,
    Project,
    Python,
    RunRequest,
    SoftwareRule,
)
from plimsoll.contract.results import (
    CellResult,
    ModuleResult,
    ProjectResult,
    RunResult,
    ScriptResult,
    StepResult,
)

REQUEST_DOMAIN = "plimsoll.run-request.v2"
REQUEST_DOMAIN_V1 = "plimsoll.run-request.v1"
RESULT_DOMAIN = "plimsoll.run-result.v1"
RECORD_DOMAIN = "plimsoll.run-record.v"

_CONTENT = ("request_sha256", "result_sha256")
_WALL = ("provider", "isolation", "environment", "policy")
_SOFTWARE = ("software_identity", "software_rule_id")
_PLACE = ("started_unix_ms", "ended_unix_ms", "session", "sequence", "previous_sha256")

RECORD_FIELDS: dict[int, tuple[str, ...]] = {
    1: (*_CONTENT, *_WALL, *_PLACE),
    2: (*_CONTENT, *_WALL, *_SOFTWARE, *_PLACE),
    3: (*_CONTENT, "unanswered", *_WALL, *_SOFTWARE, *_PLACE),
    4: (*_CONTENT, "unanswered", *_WALL, *_SOFTWARE, "instance", *_PLACE),
}
"""The hashed fields of each record version, in order. The version itself is in the domain."""


class UnknownRecordVersion(ValueError):
    """A record version nobody here can recompute."""

    def __init__(self, version: int) -> None:
        super().__init__(f"record version {version} is unknown")
        self.version = version


def request_digest(request: RunRequest) -> str:
    """Hex SHA-256 of a request as sent: an absent floor is empty, an absent timeout 0, the trace id left out."""
    digest = Digest(REQUEST_DOMAIN_V1 if request.protocol == 1 else REQUEST_DOMAIN)
    floor = request.minimum_isolation
    digest.field("protocol", request.protocol)
    digest.field("minimum_isolation", floor.value if floor else "")
    digest.field("timeout_ms", request.timeout_ms)
    if request.protocol != 1:
        _software(digest, request.software_rule)
    _payload(digest.field("kind", request.payload.kind.value), request.payload)
    return digest.hexdigest()


def _software(digest: Digest, rule: SoftwareRule | None) -> None:
    identities = rule.identities if rule else ()
    digest.field("software_mode", rule.mode if rule else "")
    digest.field("software_identities", len(identities))
    for identity in identities:
        digest.field("software_identity", identity)


def _payload(digest: Digest, payload: Payload) -> None:
    match payload:
        case JavaScript() | Python():
            digest.field("code", payload.code).field("grant_profile", payload.grant_profile)
        case Cell():
            digest.field("language", payload.language).field("code", payload.code)
            _files(digest, payload.files)
        case Project():
            _project(digest, payload)
        case Module():
            _module(digest, payload)


def _files(digest: Digest, files: tuple[File, ...]) -> None:
    digest.field("files", len(files))
    for file in files:
        digest.field("file_path", file.path).field("file_content", file.content)


def _project(digest: Digest, project: Project) -> None:
    _files(digest.field("grant_profile", project.grant_profile), project.files)
    digest.field("steps", len(project.steps))
    for step in project.steps:
        digest.field("step_command", step)
    digest.field("artifacts", len(project.artifacts))
    for path in project.artifacts:
        digest.field("artifact_path", path)


def _module(digest: Digest, module: Module) -> None:
    digest.field("model", module.model)
    digest.field("end_time", float_bytes([module.end_time])).field("step", float_bytes([module.step]))
    digest.field("rows", len(module.rows))
    for row in module.rows:
        digest.field("row_values", float_bytes(row))


def result_digest(result: RunResult) -> str:
    """Hex SHA-256 of a result as received: exact output bytes; durations and advice left out."""
    digest = Digest(RESULT_DOMAIN).field("kind", result.kind.value)
    match result:
        case ScriptResult():
            _outputs(digest, result)
        case CellResult():
            _outputs(digest, result)
            digest.field("interpreter_started", result.interpreter_started)
            digest.field("interpreter_ended", result.interpreter_ended)
        case ProjectResult():
            _project_result(digest, result)
        case ModuleResult():
            _module_result(digest, result)
    return digest.hexdigest()


def _outputs(digest: Digest, result: ScriptResult | CellResult | StepResult, prefix: str = "") -> None:
    digest.field(f"{prefix}exit_code", result.exit_code).field(f"{prefix}timed_out", result.timed_out)
    digest.field(f"{prefix}stdout", result.stdout).field(f"{prefix}stderr", result.stderr)
    digest.field(f"{prefix}stdout_truncated", result.stdout_truncated)
    digest.field(f"{prefix}stderr_truncated", result.stderr_truncated)


def _project_result(digest: Digest, result: ProjectResult) -> None:
    digest.field("outcome", int(result.outcome)).field("outcome_detail", result.outcome_detail)
    digest.field("artifacts_truncated", result.artifacts_truncated)
    digest.field("steps", len(result.steps))
    for step in result.steps:
        _outputs(digest.field("step_command", step.command), step, "step_")
    digest.field("artifacts", len(result.artifacts))
    for artifact in result.artifacts:
        digest.field("artifact_path", artifact.path).field("artifact_content", artifact.content)


def _module_result(digest: Digest, result: ModuleResult) -> None:
    digest.field("outcome", int(result.outcome)).field("outcome_detail", result.outcome_detail)
    digest.field("width", result.width).field("stdout", result.stdout).field("stderr", result.stderr)
    digest.field("runs", len(result.runs))
    for row in result.runs:
        digest.field("run_status", row.status).field("run_outputs", float_bytes(row.outputs))


def record_digest(record: RunRecord) -> str:
    """Hex SHA-256 of a record by the rules of its own version. Raises UnknownRecordVersion."""
    fields = RECORD_FIELDS.get(record.version)
    if fields is None:
        raise UnknownRecordVersion(record.version)
    digest = Digest(f"{RECORD_DOMAIN}{record.version}")
    for name in fields:
        digest.field(name, getattr(record, name))
    return digest.hexdigest()


def software_rule_id(rule: SoftwareRule | None) -> str:
    """Name of a software rule: `exact:<identity>`, `approved:sha256:<hex>` whatever the order, empty without one."""
    if rule is None:
        return ""
    if rule.mode == "exact":
        return f"exact:{rule.identities[0]}"
    joined = b"\x00".join(sorted(identity.encode() for identity in rule.identities))
    return f"approved:sha256:{hashlib.sha256(joined).hexdigest()}"


def session_fingerprint(session_id: str) -> str:
    """Public name of a session: hex SHA-256 of its secret id."""
    return hashlib.sha256(session_id.encode()).hexdigest()


def owner_digest(token: str | None, owner: str) -> str:
    """Opaque name of a session's owner, which only holders of the token can connect with the owner's own name."""
    key = hashlib.sha256(b"plimsoll session owner key v2\n" + (token or "").encode()).digest()
    return hmac.new(key, b"plimsoll session owner v2\n" + owner.encode(), hashlib.sha256).hexdigest()
