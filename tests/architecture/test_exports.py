"""The library's front door, pinned: a name added or removed here is a change for its users (CHANGELOG.md)."""

import plimsoll

EXPORTS = [
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


def test_the_exported_names_are_these() -> None:
    assert sorted(plimsoll.__all__) == EXPORTS


def test_the_list_is_sorted() -> None:
    names = list(plimsoll.__all__)
    assert names == sorted(names)


def test_every_exported_name_exists() -> None:
    assert all(hasattr(plimsoll, name) for name in EXPORTS)
