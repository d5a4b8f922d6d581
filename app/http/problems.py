"""The one table from refusals to HTTP, and the bytes of a problem answer (RFC 9457).

A code is added here in the change that adds it to the contract; a test walks the enumeration. A code whose row says
`markable` false never carries the not-dispatched mark, whatever the refusal claims: for those codes there is no proof.
"""

import json
from typing import Any, NamedTuple

from plimsoll.contract.refusals import Code, Reason, Refusal

Header = tuple[bytes, bytes]
Problem = tuple[int, list[Header], bytes]
"""Status, headers, body."""


class Row(NamedTuple):
    """How one code looks in HTTP."""

    status: int
    title: str
    markable: bool = True


TABLE: dict[Code, Row] = {
    Code.INVALID_REQUEST: Row(422, "Invalid request"),
    Code.MALFORMED_JSON: Row(400, "Malformed JSON"),
    Code.INVALID_HEADER: Row(400, "Invalid header"),
    Code.HOST_NOT_ALLOWED: Row(400, "Host not allowed"),
    Code.NOT_FOUND: Row(404, "Not found"),
    Code.METHOD_NOT_ALLOWED: Row(405, "Method not allowed"),
    Code.BODY_TOO_LARGE: Row(413, "Body too large"),
    Code.HEADERS_TOO_LARGE: Row(431, "Header too large"),
    Code.REQUEST_TIMEOUT: Row(408, "Request timeout"),
    Code.UNSUPPORTED_MEDIA_TYPE: Row(415, "Unsupported media type"),
    Code.UNAUTHENTICATED: Row(401, "Unauthenticated"),
    Code.PERMISSION_DENIED: Row(403, "Permission denied"),
    Code.CROSS_ORIGIN: Row(403, "Cross-origin request"),
    Code.PROTOCOL_MISMATCH: Row(501, "Protocol mismatch"),
    Code.UNSUPPORTED: Row(501, "Unsupported"),
    Code.EXECUTION_DISABLED: Row(501, "Execution is off"),
    Code.ISOLATION_UNMET: Row(412, "Isolation floor not met"),
    Code.SOFTWARE_UNMET: Row(412, "Software rule not met"),
    Code.UNAVAILABLE: Row(503, "Unavailable"),
    Code.RATE_LIMITED: Row(429, "Rate limited"),
    Code.CAPACITY: Row(429, "No capacity"),
    Code.STORAGE_LIMIT: Row(429, "Storage used up"),
    Code.DRAINING: Row(503, "Shutting down"),
    Code.MAY_HAVE_RUN: Row(502, "May have run", markable=False),
    Code.KEY_CONFLICT: Row(409, "Idempotency key conflict"),
    Code.INTERNAL: Row(500, "Internal error", markable=False),
}

SECURITY_HEADERS: list[Header] = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
"""On every answer of every layer."""


def status_of(code: Code) -> int:
    """The HTTP status of `code`."""
    return TABLE[code].status


def mark_of(refusal: Refusal) -> Reason | None:
    """The not-dispatched reason an answer may carry."""
    return refusal.reason if TABLE[refusal.code].markable else None


def problem_document(refusal: Refusal, request_id: str) -> dict[str, Any]:
    """The JSON body (contract.rest.Problem); absent members are left out, so a mark is never null."""
    row = TABLE[refusal.code]
    document: dict[str, Any] = {
        "type": f"urn:plimsoll:problem:{refusal.code}",
        "title": row.title,
        "status": row.status,
        "detail": refusal.detail,
        "code": refusal.code.value,
        "request_id": request_id,
        "errors": [{"field": fault.field, "rule": fault.rule} for fault in refusal.faults],
    }
    if mark := mark_of(refusal):
        document["not_dispatched"] = {"reason": mark.value}
    if refusal.run_id is not None:
        document["run_id"] = refusal.run_id
    return document


def problem_bytes(refusal: Refusal, request_id: str) -> Problem:
    """A complete answer for `refusal`. Only ASCII leaves here: whatever a field name holds arrives escaped."""
    body = json.dumps(problem_document(refusal, request_id), separators=(",", ":")).encode("ascii")
    headers = headers_of(refusal, request_id, "application/problem+json", len(body))
    return TABLE[refusal.code].status, headers, body


def headers_of(refusal: Refusal, request_id: str, content_type: str, size: int) -> list[Header]:
    """Every header of an answer for `refusal`, whatever form its body of `size` bytes has."""
    return [
        (b"content-type", content_type.encode()),
        (b"content-length", str(size).encode()),
        (b"plimsoll-request-id", request_id.encode()),
        *SECURITY_HEADERS,
        *_own_headers(refusal),
    ]


def _own_headers(refusal: Refusal) -> list[Header]:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in refusal.headers]
    if mark := mark_of(refusal):
        headers.append((b"plimsoll-not-dispatched", mark.value.encode()))
    if (seconds := _retry_after(refusal)) is not None:
        headers.append((b"retry-after", str(seconds).encode()))
    if refusal.code is Code.MAY_HAVE_RUN and refusal.run_id is not None:
        headers.append((b"location", f"/v1/runs/{refusal.run_id}".encode()))
    if refusal.code is Code.UNAUTHENTICATED:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers


def _retry_after(refusal: Refusal) -> int | None:
    """Whole seconds; every capacity answer names some, so that no client retries in a tight loop."""
    if refusal.retry_after_s is not None:
        return max(1, refusal.retry_after_s)
    return 1 if TABLE[refusal.code].status == 429 else None  # noqa: PLR2004 - the status, by its number
