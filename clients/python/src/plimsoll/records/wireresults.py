"""Run responses and records of the compatible wire API in their proto3 JSON form, read into contract values."""

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import Kind
from plimsoll.contract.results import (
    Artifact,
    CellResult,
    ModuleResult,
    ModuleRow,
    Outcome,
    ProjectResult,
    RunResult,
    ScriptResult,
    StepResult,
)
from plimsoll.records.wire import Bytes, Float, Int32, Int64, Message

_OUTCOMES = {f"PROJECT_OUTCOME_{outcome.name}": outcome for outcome in Outcome}


def _outcome(value: object) -> Outcome:
    # By name only: an enum value we cannot name could not be digested with certainty.
    if not isinstance(value, str) or value not in _OUTCOMES:
        raise ValueError("must be the name of an outcome")
    return _OUTCOMES[value]


OutcomeName = Annotated[Outcome, BeforeValidator(_outcome)]


class _Outputs(Message):
    stdout: Bytes = Field(default=b"", repr=False)
    stderr: Bytes = Field(default=b"", repr=False)
    exit_code: Int32 = 0
    timed_out: bool = False
    stdout_truncated: bool = False
    stderr_truncated: bool = False


class AdviceMessage(Message):
    """A finding on a run's calls; in no digest."""

    pattern: str = ""
    severity: str = ""
    remedy: str = ""
    method: str = ""
    route: str = ""
    detail: str = ""
    suggested_method: str = ""
    suggested_route: str = ""
    extra_calls: Int32 = 0
    added_latency_ms: Int64 = 0
    bytes_moved: Int64 = 0


class JavaScriptResultMessage(_Outputs):
    advice: list[AdviceMessage] = Field(default_factory=list)

    def value(self) -> ScriptResult:
        return ScriptResult(Kind.JAVASCRIPT, **self.model_dump(exclude={"advice"}))


class CellResultMessage(_Outputs):
    interpreter_started: bool = False
    interpreter_ended: bool = False

    def value(self) -> CellResult:
        return CellResult(**self.model_dump())


class StepResultMessage(_Outputs):
    command: str = Field(default="", repr=False)
    duration_ms: Int64 = 0

    def value(self) -> StepResult:
        return StepResult(**self.model_dump())


class ArtifactMessage(Message):
    path: str = ""
    content: Bytes = Field(default=b"", repr=False)


class ProjectResultMessage(Message):
    outcome: OutcomeName = Outcome.UNSPECIFIED
    outcome_detail: str = ""
    steps: list[StepResultMessage] = Field(default_factory=list)
    artifacts: list[ArtifactMessage] = Field(default_factory=list)
    artifacts_truncated: bool = False
    advice: list[AdviceMessage] = Field(default_factory=list)

    def value(self) -> ProjectResult:
        return ProjectResult(
            self.outcome,
            self.outcome_detail,
            self.artifacts_truncated,
            tuple(step.value() for step in self.steps),
            tuple(Artifact(artifact.path, artifact.content) for artifact in self.artifacts),
        )


class ModuleRowMessage(Message):
    status: Int32 = 0
    outputs: list[Float] = Field(default_factory=list)


class ModuleResultMessage(Message):
    outcome: OutcomeName = Outcome.UNSPECIFIED
    outcome_detail: str = ""
    width: Int32 = 0
    runs: list[ModuleRowMessage] = Field(default_factory=list)
    stdout: Bytes = Field(default=b"", repr=False)
    stderr: Bytes = Field(default=b"", repr=False)

    def value(self) -> ModuleResult:
        runs = tuple(ModuleRow(row.status, tuple(row.outputs)) for row in self.runs)
        return ModuleResult(self.outcome, self.outcome_detail, self.width, self.stdout, self.stderr, runs)


class RunResponseMessage(Message):
    """The result inside a run response; what is said beside it is in the record too."""

    javascript: JavaScriptResultMessage | None = None
    cell: CellResultMessage | None = None
    project: ProjectResultMessage | None = None
    module: ModuleResultMessage | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> "RunResponseMessage":
        if sum(result is not None for result in self._results()) != 1:
            raise ValueError("must hold exactly one result")
        return self

    def _results(
        self,
    ) -> list[
        JavaScriptResultMessage | CellResultMessage | ProjectResultMessage | ModuleResultMessage | None
    ]:
        return [self.javascript, self.cell, self.project, self.module]

    def value(self) -> RunResult:
        return next(result.value() for result in self._results() if result is not None)


class RecordMessage(Message):
    """A run record of any version; fields a version does not know are at their zero value."""

    version: Int32
    request_sha256: str = ""
    result_sha256: str = ""
    unanswered: str = ""
    provider: str = ""
    isolation: str = ""
    environment: str = ""
    policy: str = ""
    software_identity: str = ""
    software_rule_id: str = ""
    instance: str = ""
    started_unix_ms: Int64 = 0
    ended_unix_ms: Int64 = 0
    session: str = ""
    sequence: Int64 = 0
    previous_sha256: str = ""
    record_sha256: str = ""

    def value(self) -> RunRecord:
        return RunRecord(**self.model_dump())
