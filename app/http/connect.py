"""The Connect form of an error, for the compatible wire API: one table from our codes to Connect's, and the bytes of an answer.

Whatever is refused on a path of that API, by the listener, the middleware or a route, is answered in this form; which form an
answer has is decided by its path alone. The mark travels twice: as a typed detail, which clients of that API read first, and
in the header that every marked answer of ours carries.
"""

import base64
import json
from typing import Any, NamedTuple

from app.http.problems import Problem, headers_of, mark_of, problem_bytes
from plimsoll.contract.refusals import Code, Reason, Refusal

SERVICE_PATH = "/plimsoll.v1.SandboxService"

STATUS_OF = {
    "canceled": 499,
    "unknown": 500,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "aborted": 409,
    "out_of_range": 400,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "data_loss": 500,
    "unauthenticated": 401,
}
"""Connect's sixteen codes and their HTTP statuses."""


class Row(NamedTuple):
    """How one of our codes looks in Connect. `status` differs from the code's own only where HTTP itself demands it."""

    code: str
    status: int


def _row(code: str, status: int | None = None) -> Row:
    return Row(code, status or STATUS_OF[code])


TABLE: dict[Code, Row] = {
    Code.INVALID_REQUEST: _row("invalid_argument"),
    Code.MALFORMED_JSON: _row("invalid_argument"),
    Code.INVALID_HEADER: _row("invalid_argument"),
    Code.HOST_NOT_ALLOWED: _row("invalid_argument"),
    Code.NOT_FOUND: _row("not_found"),
    Code.METHOD_NOT_ALLOWED: _row("unimplemented", 405),
    Code.BODY_TOO_LARGE: _row("resource_exhausted"),
    Code.HEADERS_TOO_LARGE: _row("resource_exhausted"),
    Code.REQUEST_TIMEOUT: _row("deadline_exceeded"),
    Code.UNSUPPORTED_MEDIA_TYPE: _row("invalid_argument", 415),
    Code.UNAUTHENTICATED: _row("unauthenticated"),
    Code.PERMISSION_DENIED: _row("permission_denied"),
    Code.CROSS_ORIGIN: _row("permission_denied"),
    Code.PROTOCOL_MISMATCH: _row("unimplemented"),
    Code.UNSUPPORTED: _row("unimplemented"),
    Code.EXECUTION_DISABLED: _row("failed_precondition"),
    Code.ISOLATION_UNMET: _row("failed_precondition"),
    Code.SOFTWARE_UNMET: _row("failed_precondition"),
    # Not `failed_precondition`: with the reason `environment` clients read that as a software rule that was not met.
    Code.UNAVAILABLE: _row("unavailable"),
    Code.DRAINING: _row("unavailable"),
    Code.RATE_LIMITED: _row("resource_exhausted"),
    Code.CAPACITY: _row("resource_exhausted"),
    Code.STORAGE_LIMIT: _row("resource_exhausted"),
    # Not `unavailable`: generic Connect and gRPC clients may be set to send such a request again by themselves.
    Code.MAY_HAVE_RUN: _row("internal"),
    Code.KEY_CONFLICT: _row("already_exists"),
    Code.INTERNAL: _row("internal"),
}


def answer_bytes(refusal: Refusal, request_id: str, path: str) -> Problem:
    """A complete answer in the form that belongs to `path`."""
    if path.startswith(f"{SERVICE_PATH}/"):
        return _error_bytes(refusal, request_id)
    return problem_bytes(refusal, request_id)


def _error_bytes(refusal: Refusal, request_id: str) -> Problem:
    row = TABLE[refusal.code]
    body = json.dumps(_document(row.code, refusal), separators=(",", ":")).encode("ascii")
    return row.status, headers_of(refusal, request_id, "application/json", len(body)), body


def _document(code: str, refusal: Refusal) -> dict[str, Any]:
    document: dict[str, Any] = {"code": code, "message": refusal.detail}
    if mark := mark_of(refusal):
        # Padded: Connect clients must take both forms, and other readers of base64 often take only this one.
        value = base64.b64encode(not_dispatched_message(mark)).decode()
        document["details"] = [{"type": "plimsoll.v1.NotDispatched", "value": value}]
    return document


def not_dispatched_message(reason: Reason) -> bytes:
    """`NotDispatched{1: reason}` in protobuf: the tag of field 1 as a varint, then the number (all are below 128)."""
    return bytes((0x08, reason.number))
