"""Plimsoll's light library: run untrusted code in a sandbox and check how strong the wall was.

    with plimsoll.local() as sandbox:
        run = sandbox.run_javascript("console.log(6 * 7)", floor="process")
        run.text, run.isolation, run.record_sha256

The names below are loaded when they are first used: `import plimsoll` and `plimsoll.contract` stay light, also where the
service's own processes import them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plimsoll.client import AsyncClient, Client, Run
    from plimsoll.client.errors import (
        AnswerNotBound,
        Capacity,
        DataLoss,
        EvidenceMismatch,
        ExecutionDisabled,
        InsecureHTTP,
        InsufficientIsolation,
        InvalidBaseURL,
        InvalidOption,
        InvalidRequest,
        IsolationEvidenceMismatch,
        LocalServiceError,
        MalformedResponse,
        MayHaveRun,
        NoRecord,
        NotFound,
        PermissionDenied,
        PlimsollError,
        ProtocolMismatch,
        RecordMismatch,
        RecordVersion,
        RedirectRefused,
        Refusal,
        RequestTimeout,
        ResponseTooLarge,
        ResultKindMismatch,
        ServiceError,
        SoftwareMismatch,
        StaleAnswer,
        TransportError,
        Unauthenticated,
        Unavailable,
        Unsupported,
    )
    from plimsoll.client.local import LocalService, local
    from plimsoll.contract.refusals import Reason
    from plimsoll.contract.requests import SoftwareRule
    from plimsoll.contract.tiers import Tier

__all__ = [
    "AnswerNotBound",
    "AsyncClient",
    "Capacity",
    "Client",
    "DataLoss",
    "EvidenceMismatch",
    "ExecutionDisabled",
    "InsecureHTTP",
    "InsufficientIsolation",
    "InvalidBaseURL",
    "InvalidOption",
    "InvalidRequest",
    "IsolationEvidenceMismatch",
    "LocalService",
    "LocalServiceError",
    "MalformedResponse",
    "MayHaveRun",
    "NoRecord",
    "NotFound",
    "PermissionDenied",
    "PlimsollError",
    "ProtocolMismatch",
    "Reason",
    "RecordMismatch",
    "RecordVersion",
    "RedirectRefused",
    "Refusal",
    "RequestTimeout",
    "ResponseTooLarge",
    "ResultKindMismatch",
    "Run",
    "ServiceError",
    "SoftwareMismatch",
    "SoftwareRule",
    "StaleAnswer",
    "Tier",
    "TransportError",
    "Unauthenticated",
    "Unavailable",
    "Unsupported",
    "local",
]

_ELSEWHERE = {
    "AsyncClient": "plimsoll.client",
    "Client": "plimsoll.client",
    "LocalService": "plimsoll.client.local",
    "Reason": "plimsoll.contract.refusals",
    "Run": "plimsoll.client",
    "SoftwareRule": "plimsoll.contract.requests",
    "Tier": "plimsoll.contract.tiers",
    "local": "plimsoll.client.local",
}
"""Where a name is that is not in `plimsoll.client.errors`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_ELSEWHERE.get(name, "plimsoll.client.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
