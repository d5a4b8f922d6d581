"""From an error answer to the error that is raised (checks 21 and 22)."""

import re
from typing import Any

from plimsoll.client import errors
from plimsoll.client.answers import NOT_DISPATCHED, Head, Received, is_bound, json_object
from plimsoll.client.errors import MalformedResponse, Mark, Refusal
from plimsoll.contract import bounds
from plimsoll.contract.refusals import Code, FieldFault, Reason

CLASSES: dict[str, type[Refusal]] = {
    Code.INVALID_REQUEST: errors.InvalidRequest,
    Code.MALFORMED_JSON: errors.InvalidRequest,
    Code.INVALID_HEADER: errors.InvalidRequest,
    Code.HOST_NOT_ALLOWED: errors.InvalidRequest,
    Code.NOT_FOUND: errors.NotFound,
    Code.METHOD_NOT_ALLOWED: errors.InvalidRequest,
    Code.BODY_TOO_LARGE: errors.InvalidRequest,
    Code.HEADERS_TOO_LARGE: errors.InvalidRequest,
    Code.REQUEST_TIMEOUT: errors.InvalidRequest,
    Code.UNSUPPORTED_MEDIA_TYPE: errors.InvalidRequest,
    Code.UNAUTHENTICATED: errors.Unauthenticated,
    Code.PERMISSION_DENIED: errors.PermissionDenied,
    Code.CROSS_ORIGIN: errors.PermissionDenied,
    Code.PROTOCOL_MISMATCH: errors.ProtocolMismatch,
    Code.UNSUPPORTED: errors.Unsupported,
    Code.EXECUTION_DISABLED: errors.ExecutionDisabled,
    Code.ISOLATION_UNMET: errors.InsufficientIsolation,
    Code.SOFTWARE_UNMET: errors.SoftwareMismatch,
    Code.UNAVAILABLE: errors.Unavailable,
    Code.RATE_LIMITED: errors.Capacity,
    Code.CAPACITY: errors.Capacity,
    Code.DRAINING: errors.Unavailable,
    Code.MAY_HAVE_RUN: errors.MayHaveRun,
    Code.INTERNAL: errors.ServiceError,
    Code.KEY_CONFLICT: errors.KeyConflict,
    Code.STORAGE_LIMIT: errors.Capacity,
}
"""A code this library does not know yet is a ServiceError."""

_UNMARKABLE = {Code.MAY_HAVE_RUN, Code.INTERNAL}
_INTERNAL_ERROR = 500
_SECONDS = re.compile(r"[0-9]{1,9}")


def refusal(received: Received, request_id: str) -> Refusal:
    """The error that an error answer stands for. Its mark counts only if the answer carries our own request id."""
    head, problem = received.head, _problem(received)
    error = _error(problem, head.status)
    error.not_dispatched = _mark(head, problem, error.code) if is_bound(head, request_id) else None
    error.retry_after = _retry_after(head)
    return error


def event_refusal(problem: dict[str, Any], request_id: str, *, started: bool) -> Refusal:
    """The error that a stream's `error` event stands for. Once the run was accepted, no mark is believed."""
    status = problem.get("status")
    error = _error(problem, status if type(status) is int else 0)
    if not started and _text(problem, "request_id") == request_id:
        # A head that says no more than a status: in a stream, only the body can hold the mark.
        error.not_dispatched = _mark(Head(error.status, ()), problem, error.code)
    return error


def state_refusal(reason: Reason, run_id: str) -> Refusal:
    """The error for a run whose state says, with proof, that nothing of it ran."""
    kind = _OF_REASON[reason]
    return kind("nothing of this run was started", not_dispatched=reason, run_id=run_id)


_OF_REASON: dict[Reason, type[Refusal]] = {
    Reason.REQUEST: errors.InvalidRequest,
    Reason.PERMISSION: errors.PermissionDenied,
    Reason.PROTOCOL: errors.ProtocolMismatch,
    Reason.UNSUPPORTED: errors.Unsupported,
    Reason.ISOLATION: errors.InsufficientIsolation,
    Reason.CAPACITY: errors.Capacity,
    Reason.ENVIRONMENT: errors.Unavailable,
}


def _error(problem: dict[str, Any], status: int) -> Refusal:
    code = _text(problem, "code")
    kind = CLASSES.get(code, errors.ServiceError)
    return kind(
        _text(problem, "detail") or f"the service answered with status {status}",
        code=code,
        status=status,
        faults=_faults(problem),
        run_id=_run_id(problem),
    )


def _problem(received: Received) -> dict[str, Any]:
    try:
        return json_object(received)
    except MalformedResponse:
        # Something before the service answered (a proxy's error page): its status is all there is.
        return {}


def _mark(head: Head, problem: dict[str, Any], code: str) -> Mark:
    if head.status == _INTERNAL_ERROR or code in _UNMARKABLE:
        return None  # a contradiction: of two claims the one that proves less is believed
    if "not_dispatched" in problem:
        detail = problem["not_dispatched"]
        return _reason(detail.get("reason")) if isinstance(detail, dict) else None
    return _reason(head.only(NOT_DISPATCHED))


def _reason(word: object) -> Mark:
    if not isinstance(word, str) or not bounds.NAME.fullmatch(word):
        return None
    return Reason(word) if word in set(Reason) else "unknown"


def _text(problem: dict[str, Any], name: str) -> str:
    value = problem.get(name)
    return value if isinstance(value, str) else ""


def _faults(problem: dict[str, Any]) -> list[FieldFault]:
    listed = problem.get("errors")
    entries = listed if isinstance(listed, list) else []
    return [
        FieldFault(_text(entry, "field"), _text(entry, "rule"))
        for entry in entries
        if isinstance(entry, dict)
    ]


def _retry_after(head: Head) -> int | None:
    value = head.only("retry-after") or ""
    return int(value) if _SECONDS.fullmatch(value) else None


def _run_id(problem: dict[str, Any]) -> str | None:
    value = _text(problem, "run_id")
    return value if bounds.RUN_ID.fullmatch(value) else None
