"""Refusals as values.

    Refused                    the one exception that carries a Refusal across async layers
      .refusal: Refusal
          .code: Code          what happened, stable for programs; append-only
          .reason: Reason|None the proof that nothing ran ("not dispatched"); None = no such proof
          .faults              which fields broke which rule

A deciding function returns a Refusal; only `raise Refused(refusal)` moves it through layers that return
something else. One table in the service's `http` room turns codes into statuses.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Reason(StrEnum):
    """Why nothing ran. Present only where that is proven. Numbers are those of the compatible wire API."""

    REQUEST = "request"
    PERMISSION = "permission"
    PROTOCOL = "protocol"
    UNSUPPORTED = "unsupported"
    ISOLATION = "isolation"
    CAPACITY = "capacity"
    ENVIRONMENT = "environment"

    @property
    def number(self) -> int:
        """The enum number on the compatible wire API, from 1."""
        return list(Reason).index(self) + 1


class Code(StrEnum):
    """Stable, append-only names of everything that is not a result. Never class names, never reused."""

    INVALID_REQUEST = "invalid_request"
    MALFORMED_JSON = "malformed_json"
    INVALID_HEADER = "invalid_header"
    HOST_NOT_ALLOWED = "host_not_allowed"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    BODY_TOO_LARGE = "body_too_large"
    HEADERS_TOO_LARGE = "headers_too_large"
    REQUEST_TIMEOUT = "request_timeout"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    UNAUTHENTICATED = "unauthenticated"
    PERMISSION_DENIED = "permission_denied"
    CROSS_ORIGIN = "cross_origin"
    PROTOCOL_MISMATCH = "protocol_mismatch"
    UNSUPPORTED = "unsupported"
    EXECUTION_DISABLED = "execution_disabled"
    ISOLATION_UNMET = "isolation_unmet"
    SOFTWARE_UNMET = "software_unmet"
    UNAVAILABLE = "unavailable"
    RATE_LIMITED = "rate_limited"
    CAPACITY = "capacity"
    DRAINING = "draining"
    MAY_HAVE_RUN = "may_have_run"
    INTERNAL = "internal"
    KEY_CONFLICT = "key_conflict"
    STORAGE_LIMIT = "storage_limit"


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One broken rule. `field` is a dotted path in the body (`payload.code`); the offending value is never repeated."""

    field: str
    rule: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that got no result, and whether that proves nothing ran.

    `detail` is one sentence for people without any value the caller sent. `retry_after_s` is whole seconds,
    for capacity.
    """

    code: Code
    detail: str
    reason: Reason | None = None
    faults: tuple[FieldFault, ...] = ()
    retry_after_s: int | None = None
    run_id: str | None = None
    headers: tuple[tuple[str, str], ...] = field(default=())


class Refused(Exception):  # a refusal is not an error of ours
    """Carries one `Refusal` through layers that return something else."""

    def __init__(self, refusal: Refusal) -> None:
        """Keep the refusal; the message is its sentence."""
        super().__init__(refusal.detail)
        self.refusal = refusal


def invalid(*faults: FieldFault, code: Code = Code.INVALID_REQUEST) -> Refusal:
    """A malformed or out-of-bounds request; the sentence names the first fault, `faults` names all."""
    first = faults[0]
    return Refusal(code, f"{first.field}: {first.rule}", Reason.REQUEST, faults)
