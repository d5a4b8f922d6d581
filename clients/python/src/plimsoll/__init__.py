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
    from plimsoll.client import (
        Accepted,
        AsyncClient,
        AsyncRunHandle,
        AsyncRunStream,
        Client,
        Output,
        ProjectRun,
        Run,
        RunHandle,
        RunStream,
        StepEnded,
    )
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
        KeyConflict,
        LocalServiceError,
        MalformedResponse,
        MayHaveRun,
        NoRecord,
        NoResult,
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
        ResultMismatch,
        RunPending,
        ServiceError,
        SoftwareMismatch,
        StaleAnswer,
        StreamCut,
        TransportError,
        Unauthenticated,
        Unavailable,
        Unsupported,
    )
    from plimsoll.client.local import LocalService, local
    from plimsoll.contract.advice import Advice
    from plimsoll.contract.refusals import Reason
    from plimsoll.contract.requests import SoftwareRule
    from plimsoll.contract.results import Outcome
    from plimsoll.contract.tiers import Tier

__all__ = [
    "Accepted",
    "Advice",
    "AnswerNotBound",
    "AsyncClient",
    "AsyncRunHandle",
    "AsyncRunStream",
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
    "KeyConflict",
    "LocalService",
    "LocalServiceError",
    "MalformedResponse",
    "MayHaveRun",
    "NoRecord",
    "NoResult",
    "NotFound",
    "Outcome",
    "Output",
    "PermissionDenied",
    "PlimsollError",
    "ProjectRun",
    "ProtocolMismatch",
    "Reason",
    "RecordMismatch",
    "RecordVersion",
    "RedirectRefused",
    "Refusal",
    "RequestTimeout",
    "ResponseTooLarge",
    "ResultKindMismatch",
    "ResultMismatch",
    "Run",
    "RunHandle",
    "RunPending",
    "RunStream",
    "ServiceError",
    "SoftwareMismatch",
    "SoftwareRule",
    "StaleAnswer",
    "StepEnded",
    "StreamCut",
    "Tier",
    "TransportError",
    "Unauthenticated",
    "Unavailable",
    "Unsupported",
    "local",
]

_ELSEWHERE = {
    "Accepted": "plimsoll.client",
    "Advice": "plimsoll.contract.advice",
    "AsyncClient": "plimsoll.client",
    "AsyncRunHandle": "plimsoll.client",
    "AsyncRunStream": "plimsoll.client",
    "Client": "plimsoll.client",
    "LocalService": "plimsoll.client.local",
    "Outcome": "plimsoll.contract.results",
    "Output": "plimsoll.client",
    "ProjectRun": "plimsoll.client",
    "Reason": "plimsoll.contract.refusals",
    "Run": "plimsoll.client",
    "RunHandle": "plimsoll.client",
    "RunStream": "plimsoll.client",
    "SoftwareRule": "plimsoll.contract.requests",
    "StepEnded": "plimsoll.client",
    "Tier": "plimsoll.contract.tiers",
    "local": "plimsoll.client.local",
}
"""Where a name is that is not in `plimsoll.client.errors`."""


_DISTRIBUTION = "plimsoll-sandbox"


def _version() -> str:
    """The installed library's version; `unknown` where it was never installed."""
    from importlib import metadata  # noqa: PLC0415 - it takes longer to load than all else here

    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_ELSEWHERE.get(name, "plimsoll.client.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
