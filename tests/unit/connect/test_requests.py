"""From a body to a request: one reading, the same bounds as REST, and faults by the names of this API."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.connect.headers import broken_rule
from app.connect.messages import KINDS, RUN
from app.connect.requests import read_describe, read_run, read_session
from app.http import strict
from app.http.strict import RunRead
from plimsoll.contract import bounds
from plimsoll.contract.refusals import Code, Reason, Refusal
from plimsoll.contract.requests import File, JavaScript, Module, Project, RunRequest, SoftwareRule
from plimsoll.contract.tiers import Tier
from plimsoll.records import wire

JSON = dict[str, Any]
CANARY = "canary-7f3a"


def body(**fields: Any) -> bytes:
    return json.dumps({"protocol": 4, **fields}).encode()


def read(**fields: Any) -> RunRead:
    found = read_run(body(**fields))
    assert isinstance(found, RunRead), found
    return found


def refused(data: bytes) -> Refusal:
    found = read_run(data)
    assert isinstance(found, Refusal)
    assert CANARY not in str(found)
    return found


SNIPPET = {"javascript": {"code": "1"}}


def test_values_are_read_as_sent() -> None:
    rule = {"mode": "approved", "identities": ["b", "a"]}
    fields = {"minimumIsolation": "vm", "timeoutMs": "2500", "softwareRule": rule, "traceId": "t-1"}
    assert read(javascript={"code": "1", "grantProfile": "hr"}, **fields).request == RunRequest(
        JavaScript("1", "hr"), Tier.VM, 2500, SoftwareRule("approved", ("b", "a")), "t-1"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"timeoutMs": 0},
        {"timeoutMs": "0"},
        {"timeout_ms": 0, "trace_id": "", "software_rule": None},
        {"timeoutMs": None, "traceId": None, "softwareRule": None, "project": None, "module": None},
    ],
    ids=str,
)
def test_what_is_absent_null_or_zero_is_absent(fields: JSON) -> None:
    assert read(**SNIPPET, **fields).request == RunRequest(JavaScript("1"))


def test_a_trace_id_of_another_form_is_dropped_whole() -> None:
    found = read(**SNIPPET, traceId="two words")
    assert (found.request.trace_id, found.trace_id_dropped) == ("", True)


def test_the_kinds_that_are_not_run_yet_are_read_too() -> None:
    files = [{"path": "a/b.py", "content": "é"}, {"path": "empty"}]
    project = read(project={"files": files, "steps": ["true"], "artifacts": ["out"]})
    assert project.request.payload == Project(
        (File("a/b.py", "é".encode()), File("empty", b"")), ("true",), ("out",)
    )
    module = read(module={"model": "m", "rows": [{"values": [1, 2.5]}], "endTime": 2, "step": 0.5})
    assert module.request.payload == Module("m", ((1.0, 2.5),), 2.0, 0.5)


FAULTS: dict[str, tuple[JSON, str, str]] = {
    "a field of the payload": ({"javascript": {"code": CANARY + "\0"}}, "javascript.code", "NUL"),
    "too much code": ({"javascript": {"code": "x" * (bounds.CODE_BYTES + 1)}}, "javascript.code", "262144"),
    "a field of the message": ({**SNIPPET, "timeoutMs": 300001}, "timeout_ms", "at most 300000"),
    "an unknown field": (
        {"javascript": {"code": "1", "lang\n": CANARY}},
        "javascript.lang\\x0a",
        "not a known",
    ),
    "two spellings": (
        {**SNIPPET, "traceId": CANARY, "trace_id": CANARY},
        "trace_id",
        "must not be spelled in two ways",
    ),
    "a file outside": (
        {"project": {"steps": ["a"], "files": [{"path": "/" + CANARY}]}},
        "project.files.0.path",
        "must be relative",
    ),
    "an encoding that only REST has": (
        {"project": {"steps": ["a"], "files": [{"path": "a", "contentEncoding": "base64"}]}},
        "project.files.0.contentEncoding",
        "is not a known field",
    ),
    "files that are no list": ({"project": {"steps": ["a"], "files": {}}}, "project.files", "must be a list"),
    "a null file": ({"project": {"steps": ["a"], "files": [None]}}, "project.files.0", "must be an object"),
    "too many rows": (
        {"module": {"model": "m", "rows": [{}] * 100_001}},
        "module.rows",
        "must hold at most 100000",
    ),
    "a value that is not finite": (
        {"module": {"model": "m", "rows": [{"values": ["NaN"]}]}},
        "module.rows.0.values.0",
        "must be a number",
    ),
    "two payloads": ({**SNIPPET, "cell": {}}, "body", "exactly one of javascript"),
    "no language": ({"cell": {"code": "1"}}, "cell.language", "is required"),
    "no code in a cell": ({"cell": {"language": "python"}}, "cell.code", "is required"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_name_field_and_rule_and_no_value(name: str) -> None:
    fields, field, rule = FAULTS[name]
    refusal = refused(body(**fields))
    assert (refusal.code, refusal.reason) == (Code.INVALID_REQUEST, Reason.REQUEST)
    assert refusal.faults[0].field == field
    assert rule in refusal.faults[0].rule


def test_a_great_many_faults_are_cut_off() -> None:
    refusal = refused(body(module={"model": "m", "rows": [1] * 90_000}))
    assert len(refusal.faults) == 20


def test_a_cell_needs_a_session() -> None:
    refusal = refused(body(cell={"language": "javascript", "code": "1", "files": [{"path": "a"}]}))
    assert (refusal.code, refusal.reason) == (Code.UNSUPPORTED, Reason.UNSUPPORTED)


PROTOCOLS: dict[str, tuple[str, Code, Reason]] = {
    "absent": ("{}", Code.INVALID_REQUEST, Reason.REQUEST),
    "null": ('{"protocol":null}', Code.INVALID_REQUEST, Reason.REQUEST),
    "zero": ('{"protocol":0}', Code.INVALID_REQUEST, Reason.REQUEST),
    "text": ('{"protocol":"4"}', Code.INVALID_REQUEST, Reason.REQUEST),
    "a word": ('{"protocol":true}', Code.INVALID_REQUEST, Reason.REQUEST),
    "a fraction": ('{"protocol":4.0}', Code.INVALID_REQUEST, Reason.REQUEST),
    "beyond 32 bits": ('{"protocol":4294967300}', Code.INVALID_REQUEST, Reason.REQUEST),
    "earlier": ('{"protocol":3}', Code.PROTOCOL_MISMATCH, Reason.PROTOCOL),
    "later, with a payload of its own": ('{"protocol":5,"x":[]}', Code.PROTOCOL_MISMATCH, Reason.PROTOCOL),
    "negative": ('{"protocol":-4}', Code.PROTOCOL_MISMATCH, Reason.PROTOCOL),
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_protocol_is_judged_before_the_payload(name: str) -> None:
    text, code, reason = PROTOCOLS[name]
    for refusal in (read_run(text.encode()), read_session(text.encode())):
        assert isinstance(refusal, Refusal)
        assert (refusal.code, refusal.reason) == (code, reason)


def test_describe_takes_nothing_or_the_protocol() -> None:
    assert read_describe(b"{}") is None
    assert read_describe(b'{"protocol":4}') is None
    for text in (b"", b"[]", b'{"a":1}', b'{"protocol":3}', b'{"protocol":4,"protocol":4}'):
        assert isinstance(read_describe(text), Refusal), text


def test_a_session_procedure_says_that_there_are_none() -> None:
    assert read_session(b'{"protocol":4,"sessionId":"a"}').reason is Reason.UNSUPPORTED


def test_the_fields_are_those_that_checkers_know() -> None:
    """The library reads the same messages when it checks bundles; `sessionId` belongs to another message there."""
    assert set(RUN.names.values()) == set(wire.RunRequestMessage.model_fields) - {"session_id"}
    models: dict[str, type[wire.Message]] = {
        "javascript": wire.JavaScriptMessage,
        "project": wire.ProjectMessage,
        "module": wire.ModuleMessage,
        "cell": wire.CellMessage,
    }
    assert models.keys() == KINDS.keys()
    for kind, shape in KINDS.items():
        assert set(shape.names.values()) == set(models[kind].model_fields)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)
floors = st.sampled_from(["process", "container", "kernel", "vm"])
timeouts = st.integers(-1, 300_002)


@given(code=texts, floor=st.none() | floors, timeout=st.none() | timeouts, trace=st.none() | texts)
def test_whatever_rest_accepts_is_accepted_here_as_the_same_request(
    code: str, floor: str | None, timeout: int | None, trace: str | None
) -> None:
    envelope = {"minimum_isolation": floor, "timeout_ms": timeout or None, "trace_id": trace}
    sent = {name: value for name, value in envelope.items() if value is not None}
    by_rest = strict.read_run(json.dumps({"payload": {"kind": "javascript", "code": code}, **sent}).encode())
    here = read_run(body(javascript={"code": code}, **sent))
    if isinstance(by_rest, Refusal):
        assert isinstance(here, Refusal)
        assert (here.code, here.reason) == (by_rest.code, by_rest.reason)
    else:
        assert here == by_rest


VERSION = (b"connect-protocol-version", b"1")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([VERSION], None),
        ([], Reason.REQUEST),
        ([VERSION, VERSION], Reason.REQUEST),
        ([(VERSION[0], b"2")], Reason.REQUEST),
        ([VERSION, (b"idempotency-key", b"a")], Reason.UNSUPPORTED),
        ([VERSION, (b"prefer", b"respond-async")], Reason.UNSUPPORTED),
        ([VERSION, (b"accept", b"text/event-stream")], Reason.UNSUPPORTED),
    ],
)
def test_headers(headers: list[tuple[bytes, bytes]], reason: Reason | None) -> None:
    refusal = broken_rule(headers)
    assert (refusal.reason if refusal else None) is reason
