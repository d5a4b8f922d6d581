"""Reading and recomputing a file of golden vectors. Pure: bytes in, one report per section out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from plimsoll.contract.requests import SoftwareRule
from plimsoll.contract.rest import ResultBody, RunBody
from plimsoll.records import strictjson
from plimsoll.records.digests import (
    UnknownRecordVersion,
    owner_digest,
    record_digest,
    request_digest,
    result_digest,
    session_fingerprint,
    software_rule_id,
)
from plimsoll.records.rest import request_from_body, result_from_body
from plimsoll.records.wire import RunRequestMessage
from plimsoll.records.wireresults import RecordMessage, RunResponseMessage


class VectorFileFault(ValueError):
    """The file is no vector file, or no document that was asked for; the message names the place."""


class _Vector(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class RequestVector(_Vector):
    name: str = ""
    request: RunRequestMessage
    sha256: str


class ResultVector(_Vector):
    name: str = ""
    response: RunResponseMessage
    sha256: str


class RecordVector(_Vector):
    name: str = ""
    record: RecordMessage
    sha256: str


class SoftwareRuleVector(_Vector):
    identities: list[str] = Field(min_length=1)
    rule_id: str

    def rule(self) -> SoftwareRule:
        return SoftwareRule("exact" if len(self.identities) == 1 else "approved", tuple(self.identities))


class SessionVector(_Vector):
    session_id: str
    fingerprint: str


class OwnerVector(_Vector):
    token: str | None
    owner: str
    digest: str


class RestRequestVector(_Vector):
    """A body of `POST /v1/runs` as JSON (our own section: kinds the published encoding does not know are only here)."""

    name: str = ""
    body: RunBody
    sha256: str


class RestResultVector(_Vector):
    """The `result` of a REST answer (our own section)."""

    name: str = ""
    result: ResultBody
    sha256: str


class VectorFile(_Vector):
    """All sections; each may be empty or missing, an unknown one is a fault."""

    about: str = ""
    record_version: int = 0
    request_encoding: str = ""
    result_encoding: str = ""
    requests: list[RequestVector] = Field(default_factory=list)
    results: list[ResultVector] = Field(default_factory=list)
    records: list[RecordVector] = Field(default_factory=list)
    software_rules: list[SoftwareRuleVector] = Field(default_factory=list)
    session_fingerprints: list[SessionVector] = Field(default_factory=list)
    owner_digests: list[OwnerVector] = Field(default_factory=list)
    rest_requests: list[RestRequestVector] = Field(default_factory=list)
    rest_results: list[RestResultVector] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Report:
    """One section: how many vectors it holds, and a line for each that differs."""

    section: str
    count: int
    differing: tuple[str, ...]


Recomputed = tuple[str, str, str]
"""A vector's name, the digest it states, the digest we compute."""

_SECTIONS: dict[str, Callable[[Any], Recomputed]] = {
    "requests": lambda v: (v.name, v.sha256, request_digest(v.request.value())),
    "results": lambda v: (v.name, v.sha256, result_digest(v.response.value())),
    "records": lambda v: (v.name, v.sha256, record_digest(v.record.value())),
    "software_rules": lambda v: ("", v.rule_id, software_rule_id(v.rule())),
    "session_fingerprints": lambda v: ("", v.fingerprint, session_fingerprint(v.session_id)),
    "owner_digests": lambda v: (v.owner, v.digest, owner_digest(v.token, v.owner)),
    "rest_requests": lambda v: (v.name, v.sha256, request_digest(request_from_body(v.body))),
    "rest_results": lambda v: (v.name, v.sha256, result_digest(result_from_body(v.result))),
}


def read(data: bytes) -> VectorFile:
    """The vector file in `data`. Raises VectorFileFault naming the place and the broken rule."""
    try:
        value = strictjson.loads(data)
    except strictjson.JsonFault as fault:
        raise VectorFileFault(f"the file {fault}") from None
    return shaped(VectorFile, value)


Shape = TypeVar("Shape", bound=BaseModel)


def shaped(shape: type[Shape], value: object, what: str = "") -> Shape:
    """`value` as a shape. Raises VectorFileFault naming `what` document, the place in it and the broken rule."""
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or ("" if what else "the file")
        raise VectorFileFault(": ".join(filter(None, [what, place, first["msg"]]))) from None


def recompute(vectors: VectorFile) -> tuple[Report, ...]:
    """One report per section that the file holds, in order. Raises VectorFileFault for what cannot be recomputed."""
    return tuple(_section(name, getattr(vectors, name)) for name in _SECTIONS if getattr(vectors, name))


def _section(section: str, items: Sequence[_Vector]) -> Report:
    return Report(section, len(items), tuple(_differing(section, items)))


def _differing(section: str, items: Sequence[_Vector]) -> Iterator[str]:
    for number, item in enumerate(items):
        place = f"{section}.{number}"
        try:
            name, stated, computed = _SECTIONS[section](item)
        except (UnknownRecordVersion, ValueError) as error:
            raise VectorFileFault(f"{place}: {error}") from None
        if stated != computed:
            yield f"{place}{f' ({name})' if name else ''}: the file says {stated}, recomputed {computed}"
