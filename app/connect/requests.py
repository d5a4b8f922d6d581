"""From the body of a call to what the services take: the same `RunRequest` as the same request by REST, by the same rules.

A run message is put into the form of a REST body and read by that body's own shape, so that neither API can accept what the
other refuses, and equal requests have equal digests. What is this API's own comes first, in this order: one reading of the
JSON, the protocol number, the names of the fields, exactly one payload.
"""

from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.connect.messages import DESCRIBE, KINDS, RUN, read_message
from app.http.limits import EVERY_KIND, BodyLimits
from app.http.strict import RunRead, parse_json, read_model
from plimsoll.contract import bounds, rest
from plimsoll.contract.refusals import Code, FieldFault, Reason, Refusal, invalid
from plimsoll.contract.requests import PROTOCOL
from plimsoll.records.rest import request_from_body

NO_SESSIONS = Refusal(Code.UNSUPPORTED, "Sessions are not served here.", Reason.UNSUPPORTED)
_OTHER_PROTOCOL = Refusal(
    Code.PROTOCOL_MISMATCH, f"protocol: this service speaks {PROTOCOL} only", Reason.PROTOCOL
)
_ZERO = {"module": {"end_time": 0, "step": 0}}
"""Fields that may be left out at their zero value, although a REST body must have them."""
_INT32 = range(-(2**31), 2**31)


def read_describe(body: bytes, limits: BodyLimits = EVERY_KIND) -> Refusal | None:
    """What is wrong with a Describe request. It has no fields; its protocol number is checked if it states one."""
    value = parse_json(body, limits)
    if isinstance(value, Refusal):
        return value
    stated = isinstance(value, dict) and value.get("protocol") is not None
    if stated and (refusal := _protocol(value)) is not None:
        return refusal
    read = read_message(value, DESCRIBE)
    return read if isinstance(read, Refusal) else None


def read_session(body: bytes, limits: BodyLimits = EVERY_KIND) -> Refusal:
    """Why a session procedure does nothing: the body's own faults as far as they come before its fields, else `unsupported`."""
    value = parse_json(body, limits)
    return value if isinstance(value, Refusal) else _protocol(value) or NO_SESSIONS


def read_run(body: bytes, limits: BodyLimits = EVERY_KIND) -> RunRead | Refusal:
    """The body of Run with its values as sent, or what is wrong with it."""
    value = parse_json(body, limits)
    if isinstance(value, Refusal):
        return value
    if (refusal := _protocol(value)) is not None:
        return refusal
    message = read_message(value, RUN)
    return message if isinstance(message, Refusal) else _of_message(message)


def _protocol(value: Any) -> Refusal | None:
    """The number comes before the payload: what another protocol means by its fields is not ours to judge."""
    if not isinstance(value, dict):
        return invalid(FieldFault("body", "must be an object"))
    number = value.get("protocol")
    if number is None or (type(number) is int and number == 0):
        return invalid(FieldFault("protocol", f"is required, and must be {PROTOCOL}"))
    if type(number) is not int or number not in _INT32:
        return invalid(FieldFault("protocol", "must be an integer of 32 bits"))
    return None if number == PROTOCOL else _OTHER_PROTOCOL


def _of_message(message: dict[str, Any]) -> RunRead | Refusal:
    kinds = [kind for kind in KINDS if kind in message]
    if len(kinds) != 1:
        return invalid(FieldFault("body", f"must hold exactly one of {', '.join(KINDS)}"))
    (kind,) = kinds
    payload = _ZERO.get(kind, {}) | message.pop(kind)
    if "files" in payload:
        payload["files"] = [{"content": ""} | file for file in payload["files"]]
    return _cell(message, payload) if kind == "cell" else _run(message, kind, {"kind": kind} | payload)


def _run(envelope: dict[str, Any], kind: str, payload: dict[str, Any]) -> RunRead | Refusal:
    """The request as a REST body would say it; a timeout of zero is an absent one."""
    body = {name: value for name, value in envelope.items() if name != "protocol"} | {"payload": payload}
    timeout = body.get("timeout_ms")
    if type(timeout) is int and timeout == 0:
        del body["timeout_ms"]
    run = read_model(rest.RunBody, body)
    return _renamed(run, kind) if isinstance(run, Refusal) else _as_sent(run)


class _Cell(BaseModel):
    """What a cell has beside its code."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)
    language: Literal["javascript", "python"]
    files: list[rest.FileBody] = Field(default_factory=list, max_length=bounds.FILES)


def _cell(envelope: dict[str, Any], cell: dict[str, Any]) -> Refusal:
    """Why a cell is not run: its faults, else that it needs a session. Its code obeys the rule for a snippet's."""
    code = {name: value for name, value in cell.items() if name == "code"}
    run = _run(envelope, "cell", {"kind": "javascript"} | code)
    if isinstance(run, Refusal):
        return run
    beside = read_model(_Cell, {name: value for name, value in cell.items() if name != "code"})
    if isinstance(beside, Refusal):
        return invalid(*(FieldFault(f"cell.{fault.field}", fault.rule) for fault in beside.faults))
    return NO_SESSIONS


def _renamed(refusal: Refusal, kind: str) -> Refusal:
    """The faults by the names of this API, which has the payload under its kind."""
    faults = [FieldFault(_name(fault.field, kind), fault.rule) for fault in refusal.faults]
    return invalid(*faults, code=refusal.code)


def _name(field: str, kind: str) -> str:
    head, dot, tail = field.partition(".")
    return f"{kind}{dot}{tail}" if head == "payload" else field


def _as_sent(body: rest.RunBody) -> RunRead:
    request = request_from_body(body)
    if not request.trace_id or bounds.TRACE_ID.fullmatch(request.trace_id):
        return RunRead(request)
    return RunRead(replace(request, trace_id=""), trace_id_dropped=True)
