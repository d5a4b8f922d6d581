"""JSON shapes of the REST API, shared by the service (OpenAPI) and the clients (strict reading of answers).

Answers may gain fields: a reader ignores those it does not know. Requests may not: an unknown field is
refused.
"""

import base64
import binascii
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field, model_validator
from pydantic_core import PydanticCustomError

from plimsoll.contract import bounds
from plimsoll.contract.content import Encoding
from plimsoll.contract.refusals import Code, Reason
from plimsoll.contract.tiers import Tier

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Sha256OrEmpty = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
UnixMs = Annotated[int, Field(ge=0, le=2**53 - 1)]
Floor = Literal["process", "container", "kernel", "vm"]


def _rule(check: Any) -> AfterValidator:
    def validate(value: Any) -> Any:
        if broken := check(value):
            raise PydanticCustomError("rule", "{rule}", {"rule": broken})
        return value

    return AfterValidator(validate)


def _no_default(schema: dict[str, Any]) -> None:
    """An absent field is hashed as absent: a client that filled in a default would ask for something else."""
    schema.pop("default", None)


Code256K = Annotated[
    str,
    _rule(bounds.code_rule),
    Field(
        description="Source text, at most 262144 bytes of UTF-8, no NUL.",
        json_schema_extra={"minLength": 1, "maxLength": bounds.CODE_BYTES},
    ),
]
Path = Annotated[str, _rule(bounds.path_rule), Field(description="Relative path, at most 1024 bytes.")]
Step = Annotated[str, _rule(bounds.step_rule), Field(description="Shell command, at most 16384 bytes.")]
Identity = Annotated[str, _rule(bounds.identity_rule)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class FileBody(_Request):
    """One input file. With `content_encoding` `base64` the content is decoded; otherwise its UTF-8 bytes are taken."""

    path: Path
    content: str = Field(repr=False)
    content_encoding: Literal["utf-8", "base64"] = "utf-8"

    @model_validator(mode="after")
    def _decodable(self) -> "FileBody":
        try:
            self.bytes()
        except (binascii.Error, UnicodeEncodeError, ValueError):
            rule = "must be valid base64" if self.content_encoding == "base64" else "must be valid Unicode"
            raise PydanticCustomError("rule", "{rule}", {"rule": rule, "at": "content"}) from None
        return self

    def bytes(self) -> bytes:
        """The exact bytes of the file."""
        if self.content_encoding == "base64":
            return base64.b64decode(self.content, validate=True)
        return self.content.encode()


class JavaScriptBody(_Request):
    """A JavaScript snippet."""

    kind: Literal["javascript"]
    code: Code256K = Field(repr=False)
    grant_profile: str | None = Field(default=None, max_length=64)


class PythonBody(_Request):
    """A Python snippet."""

    kind: Literal["python"]
    code: Code256K = Field(repr=False)
    grant_profile: str | None = Field(default=None, max_length=64)


class ProjectBody(_Request):
    """Files, ordered shell steps, artifacts."""

    kind: Literal["project"]
    files: Annotated[list[FileBody], FailFast()] = Field(default_factory=list, max_length=bounds.FILES)
    steps: Annotated[list[Step], FailFast()] = Field(min_length=1, max_length=bounds.STEPS, repr=False)
    artifacts: Annotated[list[Path], FailFast()] = Field(default_factory=list, max_length=bounds.ARTIFACTS)
    grant_profile: str | None = Field(default=None, max_length=64)

    @model_validator(mode="after")
    def _together(self) -> "ProjectBody":
        if len({file.path for file in self.files}) != len(self.files):
            raise PydanticCustomError(
                "rule", "{rule}", {"rule": "must hold no duplicate path", "at": "files"}
            )
        if len(set(self.artifacts)) != len(self.artifacts):
            raise PydanticCustomError(
                "rule", "{rule}", {"rule": "must hold no duplicate path", "at": "artifacts"}
            )
        if sum(len(file.bytes()) for file in self.files) > bounds.FILES_BYTES:
            rule = f"must be at most {bounds.FILES_BYTES} bytes together"
            raise PydanticCustomError("rule", "{rule}", {"rule": rule, "at": "files"})
        return self


class ModuleRowBody(_Request):
    """One row of parameters."""

    values: Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], FailFast()] = Field(
        min_length=1, max_length=bounds.MODULE_WIDTH
    )


class ModuleBody(_Request):
    """A table of parameter rows for one model."""

    kind: Literal["module"]
    model: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    rows: Annotated[list[ModuleRowBody], FailFast()] = Field(
        min_length=1, max_length=bounds.MODULE_ROWS, repr=False
    )
    end_time: float = Field(allow_inf_nan=False)
    step: float = Field(allow_inf_nan=False)


class SoftwareRuleBody(_Request):
    """Which software may run it."""

    mode: Literal["exact", "approved"]
    identities: Annotated[list[Identity], FailFast()] = Field(
        min_length=1, max_length=bounds.SOFTWARE_IDENTITIES
    )

    @model_validator(mode="after")
    def _together(self) -> "SoftwareRuleBody":
        if len(set(self.identities)) != len(self.identities):
            raise PydanticCustomError("rule", "{rule}", {"rule": "must be distinct", "at": "identities"})
        if self.mode == "exact" and len(self.identities) != 1:
            raise PydanticCustomError(
                "rule", "{rule}", {"rule": "must hold one identity in mode exact", "at": "identities"}
            )
        return self


PayloadBody = Annotated[JavaScriptBody | PythonBody | ProjectBody | ModuleBody, Field(discriminator="kind")]


class RunBody(_Request):
    """Body of `POST /v1/runs`. A floor or timeout that is present, null included, must be a valid one.

    Whether a field was sent (`model_fields_set`) decides what the request digest says; a default never enters
    a digest.
    """

    payload: PayloadBody
    minimum_isolation: Floor = Field(
        default="process",
        description="Weakest wall accepted; absent accepts any.",
        json_schema_extra=_no_default,
    )
    timeout_ms: int = Field(
        default=bounds.TIMEOUT_DEFAULT_MS,
        ge=1,
        le=bounds.TIMEOUT_CEILING_MS,
        description="Wall clock of the run, milliseconds; absent is 30000.",
        json_schema_extra=_no_default,
    )
    software_rule: SoftwareRuleBody | None = None
    trace_id: str | None = Field(
        default=None, description="Dropped whole unless it matches [A-Za-z0-9._:-]{1,64}."
    )


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, hide_input_in_errors=True)


class ScriptResultBody(_Answer):
    """Result of a snippet. A stream is text when its bytes are valid UTF-8, base64 otherwise; nothing is repaired."""

    kind: Literal["javascript", "python"]
    exit_code: int
    timed_out: bool
    stdout: str = Field(repr=False)
    stdout_encoding: Encoding
    stdout_truncated: bool
    stderr: str = Field(repr=False)
    stderr_encoding: Encoding
    stderr_truncated: bool


class StepResultBody(_Answer):
    """One step of a project that was begun. Streams as of a snippet; `duration_ms` is in no digest."""

    command: str = Field(repr=False)
    exit_code: int
    timed_out: bool
    duration_ms: int
    stdout: str = Field(repr=False)
    stdout_encoding: Encoding
    stdout_truncated: bool
    stderr: str = Field(repr=False)
    stderr_encoding: Encoding
    stderr_truncated: bool


class ArtifactBody(_Answer):
    """One file brought back: text where its bytes are UTF-8 and JSON does not make them much longer, else base64."""

    path: str
    content: str = Field(repr=False)
    content_encoding: Encoding


_PROJECT_RESULT: dict[str, Any] = {
    "kind": "project",
    "outcome": "completed",
    "outcome_detail": "",
    "artifacts_truncated": False,
    "steps": [
        {
            "command": "python3 sum.py > out.txt",
            "exit_code": 0,
            "timed_out": False,
            "duration_ms": 24,
            "stdout": "",
            "stdout_encoding": "utf-8",
            "stdout_truncated": False,
            "stderr": "",
            "stderr_encoding": "utf-8",
            "stderr_truncated": False,
        }
    ],
    "artifacts": [{"path": "out.txt", "content": "42\n", "content_encoding": "utf-8"}],
}
OutcomeName = Literal["completed", "setup_failed", "timed_out", "protocol_error", "runner_failed"]


class ProjectResultBody(_Answer):
    """Result of a project: the steps up to the first that failed, and the artifacts that were there.

    `outcome` says how it went as a whole: `completed` also where a step failed, `setup_failed` when no step was begun.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [_PROJECT_RESULT]})
    kind: Literal["project"]
    outcome: OutcomeName
    outcome_detail: str
    artifacts_truncated: bool
    steps: list[StepResultBody]
    artifacts: list[ArtifactBody]


ResultBody = Annotated[ScriptResultBody | ProjectResultBody, Field(discriminator="kind")]


class RecordBody(_Answer):
    """The run record (docs/run-records.md)."""

    version: int
    request_sha256: Sha256OrEmpty
    result_sha256: Sha256OrEmpty
    unanswered: str
    provider: str
    isolation: str
    environment: str
    policy: str
    software_identity: str
    software_rule_id: str
    instance: str
    started_unix_ms: int
    ended_unix_ms: int
    session: Sha256OrEmpty
    sequence: int
    previous_sha256: Sha256OrEmpty
    record_sha256: Sha256


class AdviceBody(_Answer):
    """A finding on the calls of one route. More codes may come; `sentence`, for people, holds nothing of the program's.

    `count`: how many calls it is about, with `at_least` that many or more; `ms` and `bytes_back`: of these together.
    `suggested_route`: a route of the same grant, empty where there is none.
    """

    code: str
    route: str
    count: int
    at_least: bool
    sentence: str
    suggested_route: str
    ms: int
    bytes_back: int


_ADVICE = (
    "How well the program calls its API, where its grant profile says that callers are told; in no digest."
)


class RunAnswer(_Answer):
    """A finished run. `recorded` false: it ran, and its row could not be written yet."""

    id: RunId
    provider: str
    isolation: Tier = Field(strict=False)
    evidence_sha256: Sha256
    environment: str
    software_identity: str
    instance: str
    duration_ms: int
    start_ms: int
    cancelled: bool
    oom_killed: bool
    recorded: bool
    advice: list[AdviceBody] | None = Field(default=None, description=_ADVICE)
    result: ResultBody
    record: RecordBody


class NotDispatched(_Answer):
    """Proof that nothing ran, and why."""

    reason: Reason = Field(strict=False)


RunStateName = Literal["starting", "finished", "not_dispatched", "may_have_run"]


class CallBody(_Answer):
    """One call of a run to its grant's API, as a route of the profile: `status` 0 where there was no answer."""

    route: str
    status: int
    delivered: bool
    bytes_back: int
    ms: int


class CallsBody(_Answer):
    """A run's calls: sums over all of them, and the first ones. Calls that were denied or shed count in `failed` alone."""

    sent: int
    delivered: int
    bytes_out: int
    bytes_back: int
    probes: int
    failed: dict[str, int]
    entries: list[CallBody]
    left_out: int


class RunView(_Answer):
    """One run as kept: the answer's fields as far as they are known, and its state. `result` only when it was kept."""

    id: RunId
    state: RunStateName
    kind: str
    trace_id: str
    created_unix_ms: UnixMs
    ended_unix_ms: UnixMs | None = None
    settled: bool = Field(description="False while a may_have_run can still change.")
    not_dispatched: NotDispatched | None = None
    provider: str | None = None
    isolation: Tier | None = Field(default=None, strict=False)
    evidence_sha256: Sha256OrEmpty | None = None
    environment: str | None = None
    software_identity: str | None = None
    instance: str | None = None
    duration_ms: int | None = None
    start_ms: int | None = None
    cancelled: bool | None = None
    oom_killed: bool | None = None
    exit_code: int | None = None
    timed_out: bool | None = None
    grant_profile: str | None = None
    calls: CallsBody | None = Field(
        default=None, description="With a grant, once the run has ended; absent where they got lost."
    )
    advice: list[AdviceBody] | None = Field(
        default=None, description=f"{_ADVICE} A caller with the scope admin also sees what is for operators."
    )
    result: ResultBody | None = None
    record: RecordBody | None = None


class CancelBody(_Answer):
    """What asking to cancel came to.

    `cancelled`: it was running and was ended. `already_finished`: it had ended by itself. `not_dispatched`: it never started.
    `may_have_run`: its end is not known. `requested`: asked, and no word of its end yet.
    """

    id: RunId
    state: RunStateName
    outcome: Literal["cancelled", "already_finished", "not_dispatched", "may_have_run", "requested"]


class RunPage(_Answer):
    """A page of runs, newest first; `next_cursor` null at the end."""

    runs: list[RunView]
    next_cursor: str | None = None


class FactBody(_Answer):
    """One observed fact about a wall: evidence, never hardware attestation."""

    name: str
    value: str
    source: str
    observed: str
    unix_ms: UnixMs
    supports: Tier = Field(strict=False)


class EvidenceBody(_Answer):
    """The facts behind one digest (docs/run-records.md says how it is computed)."""

    sha256: Sha256
    provider: str
    tier: Tier = Field(strict=False)
    facts: list[FactBody]


class EnvironmentBody(_Answer):
    """What runs one kind of payload."""

    kind: str
    identity: str
    software_identity: str
    max_timeout_ms: int
    languages: list[str]


class ResourcesBody(_Answer):
    """Limits of one run; null where the provider has none of that sort."""

    memory_mb: int
    cpus: float | None = None
    pids: int | None = None
    disk_mb: int | None = None
    output_bytes: int


class ProviderBody(_Answer):
    """One provider as it stands now."""

    provider: str
    isolation: Tier = Field(strict=False)
    health: Literal["starting", "serving", "refusing", "draining"]
    faults: list[str] = Field(description="Required facts that are missing: with any, nothing is served.")
    shortfalls: list[str] = Field(
        default_factory=list, description="What keeps the wall from being proven as the next stronger one."
    )
    evidence_sha256: Sha256OrEmpty
    checked_unix_ms: UnixMs
    slots: int
    free: int
    policy: str
    resources: ResourcesBody | None = None
    environments: list[EnvironmentBody]


class ProvidersBody(_Answer):
    """All configured providers in order of preference."""

    providers: list[ProviderBody]


class LimitsBody(_Answer):
    """Bounds of a request and of its output."""

    code_bytes: int
    body_bytes: int
    output_bytes: int
    timeout_default_ms: int
    timeout_ceiling_ms: int


class GrantBody(_Answer):
    """A grant profile: what a run that names it may call. `preamble` is source code by language that makes calling easier."""

    name: str
    description: str
    routes: list[str]
    max_calls: int
    catalog: str
    preamble: dict[str, str]


class GrantsBody(_Answer):
    """The profiles this caller may use."""

    grants: list[GrantBody]


class KeysBody(_Answer):
    """A JWK set (RFC 7517)."""

    keys: list[dict[str, str]]


class GrantsServed(_Answer):
    """Whether runs with a grant are served, and how far the broker, which holds the credentials, is from the service.

    `same_user`: whoever is the service's user can read the broker's key. `own_user`: only root and that user can. `remote`: it
    is somebody else's process.
    """

    served: bool
    broker: Literal["none", "same_user", "own_user", "remote"]


class DescribeBody(_Answer):
    """What this service serves. `provider` and `isolation` are those of the first provider; empty and `none` without one."""

    service: Literal["plimsoll"]
    version: str
    protocol: int
    execution: bool
    provider: str
    isolation: Tier = Field(strict=False)
    kinds: list[str]
    floors: list[str] = Field(description="Floors that would be met right now.")
    limits: LimitsBody
    providers: list[ProviderBody]
    grants: GrantsServed = Field(default_factory=lambda: GrantsServed(served=False, broker="none"))


class HealthBody(_Answer):
    """The process lives, or is ready."""

    status: Literal["ok", "ready", "not_ready"]
    reasons: list[str] = Field(default_factory=list)


class FieldFaultBody(_Answer):
    """One broken rule."""

    field: str
    rule: str


class Problem(_Answer):
    """RFC 9457 problem. `not_dispatched` is present only when it is proven that nothing ran."""

    type: str
    title: str
    status: int
    detail: str
    code: Code = Field(strict=False)
    request_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    errors: list[FieldFaultBody] = Field(default_factory=list)
    not_dispatched: NotDispatched | None = None
    run_id: RunId | None = None
