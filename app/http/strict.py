"""The one strict parser of request bodies.

A gateway in front of us may enforce one reading of a body while we run another, so a body with two readings is
refused: duplicate keys at any depth, NaN and Infinity, lone surrogates, coerced types, unknown fields, a floor or
timeout that is present and not valid. Nothing here repeats a value, and nothing is built before its depth and the
number of its values are known to be bounded.
"""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from math import isinf
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from app.http.faults import faults_of
from app.http.limits import EVERY_KIND, BodyLimits
from plimsoll.contract import bounds, rest
from plimsoll.contract.refusals import Code, FieldFault, Reason, Refusal, invalid
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
from plimsoll.contract.tiers import Tier

Model = TypeVar("Model", bound=BaseModel)

# Always matches at a quote, an unterminated string up to the end, so that scanning is linear for any input.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
# Every number that could be over 64 bits or over double precision, whole; tried only where a number begins.
_LONG_NUMBER = re.compile(
    rb"[0-9.+-](?<![0-9.eE+-]{2})(?:[0-9.eE+-]{18,}+|[0-9.+-]*+[eE]\+?[0-9]{3}[0-9.eE+-]*+)"
)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# A text all of whose escaped surrogates are pairs.
_PAIRED = re.compile(
    rb"(?:[^\\]++|\\[^u]|\\u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}"
    rb"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*+",
    re.DOTALL,
)
_BRACKETS = bytes.maketrans(b"[{]}", b"(())")
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))


@dataclass(frozen=True, slots=True)
class RunRead:
    """A run request as sent, and whether its trace id was dropped for its form (to be logged)."""

    request: RunRequest
    trace_id_dropped: bool = False


def parse_json(body: bytes, limits: BodyLimits = EVERY_KIND) -> Any | Refusal:
    """The one value that `body` means as JSON, or a refusal when it is no JSON or could be read in two ways."""
    try:
        text = body.decode("utf-8")
        skeleton = _skeleton(body, limits)
        _check_depth(skeleton)
        _check_numbers(skeleton, limits.commas + limits.values)
        value = _build(text)
        _check_surrogates(body)
    except _BrokenRule as broken:
        return _malformed(str(broken))
    except UnicodeDecodeError:
        return _malformed("must be UTF-8")
    except json.JSONDecodeError as error:
        return _malformed(f"must be JSON; line {error.lineno}, column {error.colno} is not")
    return value


def read_model(model: type[Model], value: Any) -> Model | Refusal:
    """`value` as a strict model, or every broken rule (20 at most) by field, without any value."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        return invalid(*faults_of(model, error))


def read_run(body: bytes, limits: BodyLimits = EVERY_KIND) -> RunRead | Refusal:
    """The body of `POST /v1/runs` with its values as sent, or what is wrong with it."""
    value = parse_json(body, limits)
    if isinstance(value, Refusal):
        return value
    if (refusal := _elsewhere(value)) is not None:
        return refusal
    run = read_model(rest.RunBody, value)
    return run if isinstance(run, Refusal) else _as_sent(run)


class _BrokenRule(Exception):
    """Carries one phrase of ours out of the standard parser's hooks."""


def _malformed(rule: str) -> Refusal:
    return invalid(FieldFault("body", rule), code=Code.MALFORMED_JSON)


def _skeleton(body: bytes, limits: BodyLimits) -> bytes:
    """The text without its strings, once it is known to mean a bounded number of values."""
    skeleton, strings = _STRING.subn(b"", body, count=limits.values + 1)
    if strings > limits.values:
        raise _BrokenRule("must hold fewer values")
    containers = skeleton.count(b"[") + skeleton.count(b"{")
    literals = skeleton.count(b"true") + skeleton.count(b"false") + skeleton.count(b"null")
    if containers > limits.values or literals > limits.literals or skeleton.count(b",") > limits.commas:
        raise _BrokenRule("must hold fewer values")
    return skeleton


def _check_depth(skeleton: bytes) -> None:
    brackets = skeleton.translate(_BRACKETS, _NO_BRACKET)
    for _ in range(bounds.NESTING):
        brackets = brackets.replace(b"()", b"")  # takes exactly the innermost level away
    if brackets.count(b"(") > bounds.NESTING or b"()" in brackets:
        raise _BrokenRule(f"must be nested at most {bounds.NESTING} deep")


def _check_numbers(skeleton: bytes, most: int) -> None:
    """The few numbers that could be too large. The parser then needs no hook of ours for each one of millions."""
    for number, found in enumerate(_LONG_NUMBER.finditer(skeleton)):
        if number > most:
            raise _BrokenRule("must hold fewer values")
        literal = found[0]
        if any(mark in literal for mark in (b".", b"e", b"E")):
            _check_float(literal)
        elif len(literal) > 20 or not -(2**63) <= _integer(literal) < 2**63:  # noqa: PLR2004 - digits and sign of -(2**63)
            raise _BrokenRule("must hold no integer outside 64 bits")


def _build(text: str) -> Any:
    if text.startswith("\ufeff"):
        raise _BrokenRule("must not start with a byte order mark")
    return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) != len(pairs):
        raise _BrokenRule("must hold no key twice in one object")
    return built


def _constant(_: str) -> NoReturn:
    raise _BrokenRule("must hold no NaN or Infinity")


def _check_surrogates(body: bytes) -> None:
    if _SURROGATE.search(body) and not _PAIRED.fullmatch(body):
        raise _BrokenRule("must hold no lone surrogate")


def _check_float(literal: bytes) -> None:
    with suppress(ValueError):  # no number at all, as the parser will say
        if isinf(float(literal)):
            raise _BrokenRule("must hold no number outside double precision")


def _integer(literal: bytes) -> int:
    with suppress(ValueError):  # as above
        return int(literal)
    return 0


def _elsewhere(value: Any) -> Refusal | None:
    """A kind that exists and is not run here: `trial` nowhere yet, `cell` only inside a session."""
    payload = value.get("payload") if isinstance(value, dict) else None
    kind = payload.get("kind") if isinstance(payload, dict) else None
    if kind == Kind.TRIAL:
        return Refusal(Code.UNSUPPORTED, "payload.kind: nobody here runs trials", Reason.UNSUPPORTED)
    if kind == Kind.CELL:
        return invalid(FieldFault("payload.kind", "cell belongs to the cells of a session"))
    return None


def _as_sent(run: rest.RunBody) -> RunRead:
    sent = run.model_fields_set
    trace_id = run.trace_id or ""
    kept = trace_id if bounds.TRACE_ID.fullmatch(trace_id) else ""
    request = RunRequest(
        payload=_payload(run.payload),
        minimum_isolation=Tier(run.minimum_isolation) if "minimum_isolation" in sent else None,
        timeout_ms=run.timeout_ms if "timeout_ms" in sent else 0,
        software_rule=_software_rule(run.software_rule),
        trace_id=kept,
    )
    return RunRead(request, trace_id_dropped=kept != trace_id)


def _payload(body: rest.PayloadBody) -> Payload:
    match body:
        case rest.JavaScriptBody():
            return JavaScript(body.code, body.grant_profile or "")
        case rest.PythonBody():
            return Python(body.code, body.grant_profile or "")
        case rest.ProjectBody():
            files = tuple(File(file.path, file.bytes()) for file in body.files)
            return Project(files, tuple(body.steps), tuple(body.artifacts), body.grant_profile or "")
        case rest.ModuleBody():
            rows = tuple(tuple(row.values) for row in body.rows)
            return Module(body.model, rows, body.end_time, body.step)


def _software_rule(body: rest.SoftwareRuleBody | None) -> SoftwareRule | None:
    return None if body is None else SoftwareRule(body.mode, tuple(body.identities))
