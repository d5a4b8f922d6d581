"""Messages of the compatible wire API in their proto3 JSON form, read into contract values.

Strict on purpose: lowerCamelCase or snake_case names (never both of one field), bytes in base64, 64-bit integers as numbers
or decimal strings, NaN and infinities as strings, null and a missing field alike at their zero value, unknown fields refused.
"""

import base64
import binascii
import math
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from plimsoll.contract.requests import (
    Cell,
    File,
    JavaScript,
    Module,
    Payload,
    Project,
    RunRequest,
    SoftwareRule,
)
from plimsoll.contract.tiers import FLOORS, Tier

_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _int64(value: object) -> object:
    return int(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value


def _float(value: object) -> object:
    return _SPECIAL.get(value, value) if isinstance(value, str) else value


def _bytes(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be base64 text")  # noqa: TRY004 - pydantic wants ValueError
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError("must be base64 text") from None


Int64 = Annotated[int, BeforeValidator(_int64), Field(ge=-(2**63), lt=2**63)]
Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Float = Annotated[float, BeforeValidator(_float)]
Bytes = Annotated[bytes, BeforeValidator(_bytes)]


class Message(BaseModel):
    """Base of every message: both spellings, no unknown field, nulls absent."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=to_camel, validate_by_name=True,
        validate_by_alias=True, hide_input_in_errors=True,
    )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if any(
            name in data and to_camel(name) != name and to_camel(name) in data for name in cls.model_fields
        ):
            raise ValueError("must not spell one field in two ways")
        return {name: value for name, value in data.items() if value is not None}


class FileMessage(Message):
    """One file; its content is text on this API."""

    path: str = ""
    content: str = Field(default="", repr=False)


class JavaScriptMessage(Message):
    code: str = Field(default="", repr=False)
    grant_profile: str = ""

    def value(self) -> JavaScript:
        return JavaScript(self.code, self.grant_profile)


class CellMessage(Message):
    language: str = ""
    code: str = Field(default="", repr=False)
    files: list[FileMessage] = Field(default_factory=list)

    def value(self) -> Cell:
        return Cell(self.language, self.code, _files(self.files))


class ProjectMessage(Message):
    files: list[FileMessage] = Field(default_factory=list)
    steps: list[str] = Field(default_factory=list, repr=False)
    artifacts: list[str] = Field(default_factory=list)
    grant_profile: str = ""

    def value(self) -> Project:
        return Project(_files(self.files), tuple(self.steps), tuple(self.artifacts), self.grant_profile)


class RowMessage(Message):
    values: list[Float] = Field(default_factory=list)


class ModuleMessage(Message):
    model: str = ""
    rows: list[RowMessage] = Field(default_factory=list)
    end_time: Float = 0.0
    step: Float = 0.0

    def value(self) -> Module:
        return Module(self.model, tuple(tuple(row.values) for row in self.rows), self.end_time, self.step)


class SoftwareRuleMessage(Message):
    mode: Literal["exact", "approved"]
    identities: list[str] = Field(min_length=1)

    def value(self) -> SoftwareRule:
        return SoftwareRule(self.mode, tuple(self.identities))


class RunRequestMessage(Message):
    """A run request, or a session's (`sessionId`, in no digest)."""

    protocol: Int32 = 0
    minimum_isolation: str | None = None
    timeout_ms: Int64 = 0
    trace_id: str = ""
    session_id: str = Field(default="", repr=False)
    software_rule: SoftwareRuleMessage | None = None
    javascript: JavaScriptMessage | None = None
    cell: CellMessage | None = None
    project: ProjectMessage | None = None
    module: ModuleMessage | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> "RunRequestMessage":
        if sum(payload is not None for payload in self._payloads()) != 1:
            raise ValueError("must hold exactly one payload")
        if self.minimum_isolation not in {None, *FLOORS}:
            raise ValueError("must hold one of the four floors, or none")
        return self

    def _payloads(self) -> list[JavaScriptMessage | CellMessage | ProjectMessage | ModuleMessage | None]:
        return [self.javascript, self.cell, self.project, self.module]

    def value(self) -> RunRequest:
        payload: Payload = next(payload.value() for payload in self._payloads() if payload is not None)
        return RunRequest(
            payload,
            minimum_isolation=Tier(self.minimum_isolation) if self.minimum_isolation else None,
            timeout_ms=self.timeout_ms,
            software_rule=self.software_rule.value() if self.software_rule else None,
            trace_id=self.trace_id,
            protocol=self.protocol,
        )


def _files(files: list[FileMessage]) -> tuple[File, ...]:
    return tuple(File(file.path, file.content.encode()) for file in files)
