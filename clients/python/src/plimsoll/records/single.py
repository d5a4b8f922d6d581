"""One REST answer held against the request it was given for. Pure: two JSON documents in, what holds and what does not out."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from plimsoll.contract.record import RECORD_VERSION, RunRecord
from plimsoll.contract.requests import RunRequest
from plimsoll.contract.rest import RunAnswer, RunBody
from plimsoll.contract.results import RunResult
from plimsoll.records import strictjson
from plimsoll.records.checks import Stated, check_answer
from plimsoll.records.digests import record_digest, request_digest, result_digest, software_rule_id
from plimsoll.records.rest import record_from_body, request_from_body, result_from_body
from plimsoll.records.vectors import VectorFileFault, shaped

_STATED = ("provider", "isolation", "environment", "software_identity", "instance")


@dataclass(frozen=True, slots=True)
class Answered:
    """A request as sent, and the answer that came."""

    request: RunRequest
    result: RunResult
    record: RunRecord
    stated: Stated


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of the record. `problem` says how it differs; empty: it holds."""

    name: str
    problem: str


def read(request: bytes, answer: bytes) -> Answered:
    """The body of `POST /v1/runs` and its answer, or the finished run by `GET /v1/runs/{id}`. Raises VectorFileFault."""
    body = shaped(RunBody, _document("the request", request), "the request")
    # Only an answer says whether it was written down; a run that is asked for was.
    said = shaped(RunAnswer, {"recorded": True} | _document("the answer", answer), "the answer")
    try:
        result = result_from_body(said.result)
    except ValueError as error:
        raise VectorFileFault(f"the answer: result: a stream or file {error}") from None
    stated = Stated(*(str(getattr(said, name)) for name in _STATED))
    return Answered(request_from_body(body), result, record_from_body(said.record), stated)


def _document(what: str, data: bytes) -> dict[str, Any]:
    try:
        value = strictjson.loads(data)
    except strictjson.JsonFault as fault:
        raise VectorFileFault(f"{what} {fault}") from None
    if not isinstance(value, dict):
        raise VectorFileFault(f"{what} must be a JSON object")
    return value


def check(answered: Answered) -> tuple[Statement, ...]:
    """Every statement that can be checked from the two documents; of a version that is not ours, that one alone."""
    record = answered.record
    if record.version != RECORD_VERSION:
        return (Statement("version", f"the record is of version {record.version}, not {RECORD_VERSION}"),)
    differing = check_answer(answered.request, answered.result, record, answered.stated)
    return tuple(_statements(answered, differing))


def _statements(answered: Answered, differing: tuple[str, ...]) -> Iterator[Statement]:
    record = answered.record
    recomputed = {
        "request_sha256": request_digest(answered.request),
        "result_sha256": result_digest(answered.result),
        "record_sha256": record_digest(record),
        "software_rule_id": software_rule_id(answered.request.software_rule),
    }
    for name, value in recomputed.items():
        said = _shown(getattr(record, name))
        yield _statement(name, differing, f"the record says {said}, recomputed {_shown(value)}")
    for name in _STATED:
        said, beside = _shown(getattr(record, name)), getattr(answered.stated, name)
        different = f"the record says {said}, the answer {_shown(beside)}"
        allowed = f"{said} is not what the request's software rule allows"
        yield _statement(name, differing, different if beside != getattr(record, name) else allowed)
    for name in ("unanswered", "session", "sequence", "previous_sha256"):
        if name in differing:
            yield Statement(name, f"the record says {_shown(getattr(record, name))}, which no single run has")


def _statement(name: str, differing: tuple[str, ...], problem: str) -> Statement:
    return Statement(name, problem if name in differing else "")


def _shown(value: object) -> str:
    return ascii(value) if value != "" else "nothing"
