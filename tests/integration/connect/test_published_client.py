"""Programs that exist keep working: PyPI `plimsoll-client`, unchanged, in an environment of its own, against the real service.

It recomputes both digests and the record of every run it is given and raises a typed error for whatever does not hold, so a
result here says that all of its checks passed.
"""

import time

import pytest

from tests.integration.connect.conftest import Served
from tests.integration.connect.published import Call, javascript, judge

pytestmark = [pytest.mark.component("wasm"), pytest.mark.component("published-client")]

LOOP = "for (;;);"


def test_describe(served: Served) -> None:
    (described,) = judge(served.url, served.token, ("describe", {}))
    result = described.result
    assert (result["provider"], result["isolation"], result["protocol"]) == ("wasm", "process", 4)
    assert result["javascript_environment"]["languages"] == ["javascript"]
    assert result["javascript_environment"]["max_timeout_ms"] == 300_000
    assert result["javascript_environment"]["software_identity"].startswith("wasm:sha256:")
    assert result["resources"]["memory_mb"] == 64
    assert not any(value for name, value in result.items() if name.startswith("supports_"))


def test_results(served: Served) -> None:
    unicode, failed, late, over, floor = judge(
        served.url,
        served.token,
        javascript("console.log('Füße 漢字 \U0001f4a5'); console.error('é')"),
        javascript("throw new Error('no')"),
        javascript(LOOP, timeout=0.3),
        # The program's text is ASCII; the cap falls into the middle of a character, so what is kept is not UTF-8.
        javascript("console.log('x' + '\\u00e9'.repeat(40000))"),
        javascript("console.log(1)", minimum_isolation="process", trace_id="trace-1.a:b"),
    )
    assert unicode.stdout.decode() == "Füße 漢字 \U0001f4a5\n"
    assert (failed.result["exit_code"], failed.result["timed_out"]) == (1, False)
    assert (late.result["exit_code"], late.result["timed_out"]) == (124, True)
    assert over.stdout == b"x" + "é".encode() * 32767 + b"\xc3"
    assert (len(over.stdout), over.result["stdout_truncated"], over.result["exit_code"]) == (65536, True, 0)
    assert floor.result["isolation"] == "process"
    for each in (unicode, failed, late, over, floor):
        assert each.result["record"]["version"] == 4
        assert each.result["instance"].startswith("wasm-vm:")


def test_a_software_rule_that_is_met_is_in_the_record(served: Served) -> None:
    (described,) = judge(served.url, served.token, ("describe", {}))
    software = described.result["javascript_environment"]["software_identity"]
    rules = [
        {"mode": "exact", "identities": [software]},
        {"mode": "approved", "identities": ["other:1", software]},
    ]
    exact, approved = judge(served.url, served.token, *(javascript("1", software=rule) for rule in rules))
    assert exact.result["record"]["software_rule_id"] == f"exact:{software}"
    assert approved.result["record"]["software_rule_id"].startswith("approved:sha256:")


# Its own checks let this pass; as JSON every byte of it takes six.
OVERSIZE = {"files": {"a": "\x01" * (4 << 20)}, "steps": ["true"]}

REFUSED: dict[str, tuple[Call, str, str, str]] = {
    "a floor": (
        javascript("1", minimum_isolation="kernel"),
        "InsufficientIsolationError",
        "failed_precondition",
        "isolation",
    ),
    "a software rule": (
        javascript("1", software={"mode": "exact", "identities": ["other:1"]}),
        "SoftwareMismatchError",
        "failed_precondition",
        "environment",
    ),
    "a timeout over the ceiling": (
        javascript("1", timeout=301),
        "InvalidRequestError",
        "invalid_argument",
        "request",
    ),
    "a grant": (javascript("1", grant_profile="some"), "UnsupportedError", "unimplemented", "unsupported"),
    "an oversize body": (
        ("run_project", OVERSIZE),
        "InvalidRequestError",
        "resource_exhausted",
        "request",
    ),
    "a project": (
        ("run_project", {"files": {"a": "b"}, "steps": ["true"]}),
        "UnsupportedError",
        "unimplemented",
        "unsupported",
    ),
    "a module": (
        ("run_module", {"model": "m", "rows": [[1.5]], "end_time": 1, "step": 0.5}),
        "UnsupportedError",
        "unimplemented",
        "unsupported",
    ),
    "a session": (("open_session", {}), "UnsupportedError", "unimplemented", "unsupported"),
}


def test_refusals_are_the_documented_classes_and_marked(served: Served) -> None:
    caller = served.fresh()
    judged = judge(caller.url, caller.token, *(call for call, *_ in REFUSED.values()))
    for name, outcome in zip(REFUSED, judged, strict=True):
        _, kind, code, reason = REFUSED[name]
        error = outcome.error
        assert (error["class"], error["code"], error["not_dispatched"]) == (kind, code, reason), name
        assert not error["answer_not_bound"], name
    assert caller.runs() == []


@pytest.mark.parametrize("token", [None, "wrong", "plim_" + "A" * 43 + "_AAAAAA"])
def test_a_missing_or_wrong_token_is_unauthenticated_and_marked(served: Served, token: str | None) -> None:
    described, ran = judge(served.url, token, ("describe", {}), javascript("1"))
    for outcome in (described, ran):
        assert outcome.verdict == ("PlimsollError", "permission")
        assert (outcome.error["code"], outcome.error["http_status"]) == ("unauthenticated", 401)


def test_a_request_cancelled_before_it_is_sent_never_runs(served: Served) -> None:
    caller = served.fresh()
    by_handle, by_await = judge(
        caller.url, caller.token, ("cancel_before", {"code": "1"}), ("cancel_await_before", {"code": "1"})
    )
    assert by_handle.verdict == ("RequestCanceledError", "request")
    assert by_await.error["class"] == "CancelledError"
    assert caller.runs() == []


@pytest.mark.parametrize(
    ("how", "kind"), [("cancel_after", "RequestCanceledError"), ("cancel_await_after", "TimeoutError")]
)
def test_a_request_cancelled_after_it_is_sent_is_unmarked_and_its_run_ends(
    served: Served, how: str, kind: str
) -> None:
    caller = served.fresh()
    given = {"seconds": 1, "code": LOOP, "timeout": 60}
    (outcome,) = judge(caller.url, caller.token, (how, given))
    assert outcome.verdict == (kind, None)
    assert outcome["seconds"] < 10
    until = time.monotonic() + 10
    while [run["state"] for run in caller.runs()] != ["finished"]:
        assert time.monotonic() < until, caller.runs()
        time.sleep(0.1)
    assert caller.runs()[0]["cancelled"] is True
