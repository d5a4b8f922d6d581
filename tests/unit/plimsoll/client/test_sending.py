"""Checks 1 to 10: what is refused before anything leaves, and what leaves when it is fine."""

import json
import math
from datetime import timedelta
from typing import Any, cast

import pytest

import plimsoll
from plimsoll.client import errors
from plimsoll.client.core import Asked, project, snippet
from plimsoll.client.options import options
from plimsoll.client.requests import milliseconds, script_request
from plimsoll.contract import bounds
from plimsoll.contract.refusals import Reason
from plimsoll.contract.requests import JavaScript, Python, SoftwareRule
from plimsoll.contract.rest import RunBody
from plimsoll.contract.tiers import Tier
from plimsoll.records import request_digest
from plimsoll.records.rest import request_from_body
from tests.unit.plimsoll import honest
from tests.unit.plimsoll.client.exchanges import CODE, core


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8746",
        "//127.0.0.1",
        "ftp://127.0.0.1",
        "http://",
        "http://:80",
        "http://u@127.0.0.1",
        "http://u:p@127.0.0.1",
        "http://@127.0.0.1",
        "http://127.0.0.1?q",
        "http://127.0.0.1?",
        "http://127.0.0.1#f",
        "http://127.0.0.1#",
        "http://127.0.0.1 ",
        "http://127.0.0.1/\n",
        "http://127.0.0.1/a b",
        "http:\\\\127.0.0.1",
        "http://127.0.0.1:0",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:x",
        "http://[::1",
        "http://b\u00fccher.example",
    ],
)
def test_1_a_base_url_that_is_not_absolute_and_plain(url: str) -> None:
    with pytest.raises(errors.InvalidBaseURL) as caught:
        options(url, "")
    assert caught.value.not_dispatched is Reason.REQUEST


def test_1_without_any_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLIMSOLL_URL", raising=False)
    with pytest.raises(errors.InvalidBaseURL, match="PLIMSOLL_URL"):
        options(None, None)


def test_1_a_path_before_the_routes_is_kept() -> None:
    found = options("https://example.org/sandbox/", "")
    assert (found.origin, found.prefix) == ("https://example.org", "/sandbox")


@pytest.mark.parametrize(
    "host",
    [
        "example.org",
        "127.evil.example",
        "localhost.evil.example",
        "10.0.0.1",
        "0.0.0.0",
        "[::]",
        "[2001:db8::1]",
        "2130706433",
        "0x7f.1",
        "127.1",
    ],
)
def test_2_cleartext_is_for_loopback_by_parsed_address(host: str) -> None:
    with pytest.raises(errors.InsecureHTTP):
        options(f"http://{host}:8746", "")
    assert options(f"http://{host}:8746", "", insecure_http=True).origin == f"http://{host}:8746"
    assert options(f"https://{host}:8746", "").origin == f"https://{host}:8746"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost", "LOCALHOST"])
def test_2_loopback_may_be_cleartext(host: str) -> None:
    assert options(f"http://{host}:8746", "").prefix == ""


@pytest.mark.parametrize("token", ["a b", "a\n", "\x00", "t\u00f6ken", "\x7f"])
def test_3_a_token_is_visible_ascii_and_never_repeated(token: str) -> None:
    with pytest.raises(errors.InvalidOption) as caught:
        options("http://localhost", token)
    assert token not in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 10**400, True, "5", None])
def test_3_the_deadline_is_finite_and_positive(value: Any) -> None:
    with pytest.raises(errors.InvalidOption):
        options("http://localhost", "", deadline=value)


def test_3_secrets_are_in_no_repr() -> None:
    assert "secret" not in repr(options("http://localhost", "secret"))
    assert "secret-token" not in repr(core().run(snippet(CODE)))
    assert "console" not in repr(core().run(snippet(CODE)))


def test_url_and_token_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_URL", "http://127.0.0.1:5")
    monkeypatch.setenv("PLIMSOLL_TOKEN", "t")
    found = options(None, None)
    assert (found.origin, found.token) == ("http://127.0.0.1:5", "t")
    assert options("http://127.0.0.1:6", "u").token == "u"


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("", "empty"),
        ("a\0", "NUL"),
        ("\ud800", "surrogates"),
        ("x" * (bounds.CODE_BYTES + 1), "262144"),
        ("\u00e9" * (bounds.CODE_BYTES // 2 + 1), "262144"),
        (b"1", "text"),
        (None, "text"),
    ],
)
def test_4_code(code: Any, rule: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=rule) as caught:
        core().run(snippet(JavaScript(code)))
    assert caught.value.not_dispatched is Reason.REQUEST
    assert caught.value.faults[0].field == "code"


def test_4_the_longest_code_is_fine() -> None:
    assert len(core().run(snippet(JavaScript("x" * bounds.CODE_BYTES))).body) > bounds.CODE_BYTES


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ({"floor": "none"}, "floor"),
        ({"floor": ""}, "floor"),
        ({"floor": "Kernel"}, "floor"),
        ({"grant_profile": ""}, "grant_profile"),
        ({"grant_profile": "HR"}, "grant_profile"),
        ({"grant_profile": "x" * 65}, "grant_profile"),
        ({"trace_id": ""}, "trace_id"),
        ({"trace_id": "a b"}, "trace_id"),
        ({"trace_id": "x" * 65}, "trace_id"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": math.nan}, "timeout"),
        ({"timeout": math.inf}, "timeout"),
        ({"timeout": 300.001}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"timeout": 1e9}, "timeout"),
        ({"timeout": 10**400}, "timeout"),
        ({"software_rule": SoftwareRule("exact", ())}, "software_rule.identities"),
        ({"software_rule": SoftwareRule("exact", ("a", "b"))}, "software_rule.identities"),
        ({"software_rule": SoftwareRule("approved", ())}, "software_rule.identities"),
        ({"software_rule": SoftwareRule("approved", ("a", "a"))}, "software_rule.identities"),
        ({"software_rule": SoftwareRule("approved", ("a b",))}, "software_rule.identities"),
        (
            {"software_rule": SoftwareRule("approved", tuple(str(n) for n in range(33)))},
            "software_rule.identities",
        ),
        ({"software_rule": SoftwareRule("any", ("a",))}, "software_rule.mode"),  # type: ignore[arg-type]
    ],
)
def test_8_and_9_everything_beside_the_code(how: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        core().run(snippet(CODE, **how))
    assert [fault.field for fault in caught.value.faults] == [field]
    assert caught.value.not_dispatched is Reason.REQUEST


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"floor": "vmm"}, "floor: must be one of process, container, kernel, vm"),
        ({"floor": 4}, "floor: must be one of process, container, kernel, vm"),
        ({"floor": ["vm"]}, "floor: must be one of process, container, kernel, vm"),
        ({"timeout": 1e9}, "timeout: at most 300 seconds"),
        ({"timeout": "5"}, "timeout: must be a number of seconds"),
        ({"timeout": timedelta(seconds=5)}, "timeout: must be a number of seconds"),
        ({"timeout": math.nan}, "timeout: must be a finite number of seconds"),
        (
            {"grant_profile": {"origin": "https://hr.example.com"}},
            "grant_profile: must be the name of a profile, 1 to 64 characters of [a-z0-9-]",
        ),
        ({"trace_id": 5}, "trace_id: must be text"),
        ({"trace_id": b"t"}, "trace_id: must be text"),
        ({"idempotency_key": 5}, "idempotency_key: must be 1 to 255 visible ASCII characters"),
        (
            {"software_rule": {"mode": "exact", "identities": ["a"]}},
            'software_rule: must be a plimsoll.SoftwareRule, like SoftwareRule("exact", (identity,))',
        ),
        ({"software_rule": SoftwareRule([], ("a",))}, "software_rule.mode: must be exact or approved"),  # type: ignore[arg-type]
        *(
            (
                {"software_rule": SoftwareRule("approved", identities)},
                "software_rule.identities: must be a tuple of text, also when it holds one",
            )
            for identities in cast("list[tuple[str, ...]]", ["abc", None, 5, ("a", 5), ("a", []), {"a"}])
        ),
    ],
    ids=repr,
)
def test_a_wrong_type_is_refused_by_the_name_of_the_argument(how: dict[str, Any], message: str) -> None:
    with plimsoll.Client("http://127.0.0.1:1", "") as client:
        for method in (client.run_javascript, client.start_python, client.stream_javascript):
            with pytest.raises(errors.InvalidRequest) as caught:
                method("1", **how)
            assert str(caught.value) == message
            assert caught.value.not_dispatched is Reason.REQUEST


def test_identities_in_a_list_are_copied() -> None:
    identities = ["a", "b"]
    how: dict[str, Any] = {"software_rule": SoftwareRule("approved", identities)}  # type: ignore[arg-type]
    request = script_request(CODE, **how)
    identities.append("c")
    assert request.software_rule == SoftwareRule("approved", ("a", "b"))


@pytest.mark.parametrize(
    "how", [{"base_url": 5}, {"token": 5}, {"unix_socket": 5}, {"unix_socket": b"s"}, {"tls": True}]
)
def test_3_an_option_of_a_wrong_type(how: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidOption):
        options(**{"base_url": "http://localhost", "token": "", **how})


def test_a_misspelled_option_is_not_a_missing_floor() -> None:
    with pytest.raises(TypeError, match="flor"):
        core().run(snippet(CODE, flor="kernel"))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="insecure"):
        options("http://localhost", "", insecure=True)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("seconds", "expected"), [(1e-9, 1), (0.0001, 1), (0.0015, 2), (1, 1000), (1e300, 2**53 - 1)]
)
def test_10_durations_are_rounded_up_and_clamped(seconds: float, expected: int) -> None:
    assert milliseconds(seconds) == expected


RULE = SoftwareRule("approved", ("b", "a"))


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"floor": "kernel"},
        {"floor": Tier.VM, "timeout": 5},
        {"timeout": 0.25, "trace_id": "t-1"},
        {"software_rule": RULE},
    ],
)
@pytest.mark.parametrize("payload", [CODE, Python("print('\u00fc \N{SHIP}')"), JavaScript("1", "hr-read")])
def test_what_is_sent_is_read_by_the_service_as_what_we_digest(
    payload: JavaScript | Python, how: dict[str, Any]
) -> None:
    prepared = core().run(snippet(payload, **how))
    read = request_from_body(RunBody.model_validate_json(prepared.body))
    answer = honest.run_answer(read)
    assert answer["record"]["request_sha256"] == request_digest(read)
    assert read.payload == payload
    assert read.software_rule == how.get("software_rule")
    assert read.minimum_isolation == how.get("floor")
    assert set(json.loads(prepared.body)) == {
        "payload",
        *{"floor": ["minimum_isolation"]}.get("floor" if "floor" in how else "", []),
        *{"timeout": ["timeout_ms"]}.get("timeout" if "timeout" in how else "", []),
        *(name for name in ("trace_id", "software_rule") if name in how),
    }


def test_a_grant_is_named_in_the_payload_of_every_kind_however_it_is_sent() -> None:
    one = core()
    every: list[Asked[Any]] = [
        snippet(CODE, grant_profile="hr-read"),
        snippet(Python("1"), grant_profile="hr-read"),
        project({}, ["true"], (), grant_profile="hr-read"),
    ]
    for asked in every:
        bodies = [one.run(asked).body, one.start(asked).body, one.stream(asked).prepared.body]
        assert [json.loads(body)["payload"]["grant_profile"] for body in bodies] == ["hr-read"] * 3
        assert asked.request.payload == request_from_body(RunBody.model_validate_json(bodies[0])).payload
    assert b"grant_profile" not in one.run(snippet(CODE, grant_profile=None)).body


def test_the_head_of_a_request() -> None:
    prepared = core().run(snippet(CODE))
    headers = dict(prepared.headers)
    assert (prepared.method, prepared.path) == ("POST", "/v1/runs")
    assert headers["authorization"] == "Bearer secret-token"
    assert headers["accept-encoding"] == "identity"
    assert headers["plimsoll-request-id"] == prepared.request_id
    assert "idempotency-key" not in headers


def test_every_request_has_its_own_id() -> None:
    one = core()
    assert one.run(snippet(CODE)).request_id != one.run(snippet(CODE)).request_id


def test_without_a_token_there_is_no_such_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLIMSOLL_TOKEN", raising=False)
    from plimsoll.client.core import Core  # noqa: PLC0415 - one use, snippet

    assert "authorization" not in dict(Core(options("http://localhost", None)).describe().headers)
