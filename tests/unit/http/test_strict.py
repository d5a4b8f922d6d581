"""One reading of a body, or a refusal that repeats nothing of it."""

import json
import time
from typing import Any

import pytest

from app.http import strict
from app.http.limits import SNIPPET_BODY_BYTES, body_limits
from plimsoll.contract import bounds, rest
from plimsoll.contract.refusals import Code, FieldFault, Reason, Refusal
from plimsoll.contract.requests import (
    File,
    JavaScript,
    Kind,
    Module,
    Project,
    Python,
    RunRequest,
    SoftwareRule,
)
from plimsoll.contract.tiers import Tier

CANARY = "canary-7f3a"
CODE = f'"kind": "javascript", "code": "{CANARY}"'

NOT_JSON: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "must be JSON"),
    "not utf-8": (b'{"a": "\xff"}', "UTF-8"),
    "utf-8 surrogate": (b'{"a": "\xed\xa0\x80"}', "UTF-8"),
    "overlong utf-8": (b'{"a": "\xc0\x80"}', "UTF-8"),
    "utf-16": ('{"a": 1}'.encode("utf-16-le"), "must be JSON"),
    "byte order mark": (b'\xef\xbb\xbf{"a": 1}', "byte order mark"),
    "duplicate key": (b'{"a": 1, "a": 1}', "no key twice"),
    "duplicate key, deep": (b'{"a": [[{"b": {"c": 1, "d": 2, "c": 3}}]]}', "no key twice"),
    "duplicate key, escaped": (b'{"a": 1, "\\u0061": 2}', "no key twice"),
    "NaN": (b'{"a": NaN}', "NaN"),
    "Infinity": (b"[Infinity]", "NaN"),
    "-Infinity": (b"[-Infinity]", "NaN"),
    "infinite by exponent": (b"[1e999]", "double precision"),
    "infinite by digits": (b"[1" + b"0" * 400 + b".0]", "double precision"),
    "negative infinite": (b"[-1E+0999]", "double precision"),
    "huge integer": (b"[1" + b"0" * 5000 + b"]", "64 bits"),
    "integer of 65 bits": (b"[18446744073709551616]", "64 bits"),
    "one over 64 bits": (b"[9223372036854775808]", "64 bits"),
    "lone surrogate": (b'["\\ud800"]', "surrogate"),
    "lone low surrogate": (b'["\\uDFFF"]', "surrogate"),
    "reversed pair": (b'["\\udc00\\ud800"]', "surrogate"),
    "lone after a pair": (b'["\\ud83d\\ude00\\ud83d"]', "surrogate"),
    "two high, one low": (b'["\\ud83d\\uD83D\\ude00x\\ud800"]', "surrogate"),
    "high, then another escape": (b'["\\ud83d\\u0041"]', "surrogate"),
    "high, then a backslash": (b'["\\ud83d\\\\ude00"]', "surrogate"),
    "lone surrogate as key": (b'{"\\ud800": 1}', "surrogate"),
    "33 lists": (b"[" * 33 + b"]" * 33, "32 deep"),
    "33 of both": (b'{"a":[' * 16 + b"{}" + b"]}" * 16, "32 deep"),
    "unclosed": (b"[" * 1000, "32 deep"),
    "closed only": (b"]" * 1000, "must be JSON"),
    "million lists": (b"[" * 1_000_000, "fewer values"),
    "many empty objects": (b"[" + b"{}," * 300_000 + b"1]", "fewer values"),
    "many strings": (b"[" + b'"",' * 300_000 + b"1]", "fewer values"),
    "many nulls": (b"[" + b"null," * 5000 + b"1]", "fewer values"),
    "trailing comma": (b'{"a": 1,}', "must be JSON"),
    "two values": (b"{} {}", "must be JSON"),
    "single quotes": (b"{'a': 1}", "must be JSON"),
    "comment": (b"{} // a", "must be JSON"),
    "control character": (b'["a\x01"]', "must be JSON"),
    "newline in string": (b'["a\n"]', "must be JSON"),
    "leading zero": (b"[01]", "must be JSON"),
    "leading plus": (b"[+1]", "must be JSON"),
    "bare point": (b"[1.]", "must be JSON"),
    "bad escape": (b'["\\x41"]', "must be JSON"),
    "NUL": (b"\x00{}", "must be JSON"),
    "unterminated": (b'["' + b"a" * 1000, "must be JSON"),
    "unterminated escape": (b'["\\', "must be JSON"),
}


@pytest.mark.parametrize(("body", "rule"), NOT_JSON.values(), ids=NOT_JSON)
def test_a_body_with_no_one_reading_is_refused(body: bytes, rule: str) -> None:
    refusal = strict.parse_json(body)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.reason) == (Code.MALFORMED_JSON, Reason.REQUEST)
    assert rule in refusal.faults[0].rule
    assert strict.read_run(body) == refusal


JSON: dict[str, tuple[bytes, Any]] = {
    "32 lists": (b"[" * 32 + b"]" * 32, None),
    "32 of both": (b'{"a":[' * 16 + b"1" + b"]}" * 16, None),
    "brackets in strings": (json.dumps(["[{" * 100, '"[{\\' * 100]).encode(), ["[{" * 100, '"[{\\' * 100]),
    "siblings": (b"[" + b"[]," * 1000 + b"1]", None),
    "pair of surrogates": (b'["\\ud83d\\ude00"]', ["\U0001f600"]),
    "pairs and other escapes": (b'["\\u00e9\\\\\\uD83D\\uDE00\\n\\ud7ff\\ue000"]', None),
    "escaped backslash": (b'["\\\\ud800"]', ["\\ud800"]),
    "64 bits": (b"[9223372036854775807, -9223372036854775808]", [2**63 - 1, -(2**63)]),
    "large exponent": (b"[1e308, 1e-400]", [1e308, 0.0]),
    "long fraction": (b"[0.1000000000000000055511151231257827]", [0.1]),
    "same key in two objects": (b'[{"a": 1}, {"a": 1}]', [{"a": 1}, {"a": 1}]),
    "white space": (b" \t\r\n{} \n", {}),
    "scalar": (b"true", True),
}


@pytest.mark.parametrize(("body", "value"), JSON.values(), ids=JSON)
def test_lawful_json_is_read(body: bytes, value: Any) -> None:
    assert strict.parse_json(body) == (json.loads(body) if value is None else value)


@pytest.mark.parametrize(
    "body",
    [
        b'"\\"' * 5_000_000,
        b'\\"' * 8_000_000,
        b'"' + b"a" * 16_000_000,
        b"[" * 16_000_000,
        b"[]" * 8_000_000,
        b"9" * 16_000_000,
        b'"\\' * 8_000_000,
    ],
    ids=["strings", "escapes", "one string", "lists", "siblings", "digits", "backslashes"],
)
def test_16_mib_of_anything_takes_less_than_a_second_or_two(body: bytes) -> None:
    started = time.perf_counter()
    assert isinstance(strict.parse_json(body), Refusal)
    assert time.perf_counter() - started < 30


SNIPPETS = body_limits({Kind.JAVASCRIPT})
ROW = b'{"values":[' + b",".join([b"1"] * 64) + b"]}"
COSTLY = {
    "numbers": b"[" + b"1," * 1_000_000 + b"1]",
    "rows": b"[" + b",".join([ROW] * 10_000) + b"]",
    "long numbers": b"[" + b"1000000000000000000," * 100_000 + b"1]",
    "long numbers, no commas": b"[" + b"1.00000000000000000 " * 100_000 + b"]",
    "strings": b"[" + b'"",' * 600_000 + b'""]',
    "pairs": b'["\\ud83d\\ude00",' + b"1," * 1_000_000 + b"1]",
    "keys": b"{" + b",".join(b'"%d":1' % number for number in range(100_000)) + b"}",
    "lists": b"[" + b"[]," * 600_000 + b"1]",
}


@pytest.mark.parametrize("body", COSTLY.values(), ids=COSTLY)
def test_more_than_a_snippet_can_need_is_refused_before_it_is_built(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("was built"))
    refusal = strict.read_run(body, SNIPPETS)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.faults[0].rule) == (Code.MALFORMED_JSON, "must hold fewer values")


def test_more_numbers_than_the_largest_table_has_are_refused_before_they_are_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("was built"))
    assert isinstance(strict.parse_json(b"[" + b"1," * 8_000_000 + b"1]"), Refusal)


def test_no_number_costs_a_call_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str]] = []
    real = json.loads

    def loads(text: str, **hooks: Any) -> Any:
        asked.append(set(hooks))
        return real(text, **hooks)

    monkeypatch.setattr(json, "loads", loads)
    assert strict.parse_json(b"[1000000000000000000, 1.5, 1e300]") == [10**18, 1.5, 1e300]
    assert asked == [{"object_pairs_hook", "parse_constant"}]


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":"' + b"\\n" * 2**20 + b'"}',
        b'{"a":"' + b"\\ud83d\\ude00" * 2**17 + b'"}',
        b"{" + b" " * 2**21 + b"}",
        b"[" + b"111111111111111111 " * 2**16 + b"]",
    ],
    ids=["escapes", "pairs", "white space", "numbers"],
)
def test_the_largest_body_of_a_snippet_is_read_in_a_moment(body: bytes) -> None:
    started = time.process_time()
    strict.read_run(body, SNIPPETS)
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    ("kinds", "size"),
    [
        ((), SNIPPET_BODY_BYTES),
        ((Kind.JAVASCRIPT,), SNIPPET_BODY_BYTES),
        ((Kind.PYTHON, Kind.CELL), SNIPPET_BODY_BYTES),
        ((Kind.JAVASCRIPT, Kind.PROJECT), bounds.BODY_BYTES),
        ((Kind.MODULE,), bounds.BODY_BYTES),
        (tuple(Kind), bounds.BODY_BYTES),
    ],
)
def test_a_body_may_be_as_large_as_the_kinds_that_can_be_served_need(
    kinds: tuple[Kind, ...], size: int
) -> None:
    assert body_limits(kinds).size == size


def test_the_largest_snippet_has_room_however_it_is_escaped() -> None:
    for character in ("\x01", "\u20ac", "\U0001f600", '"'):
        code = character * (bounds.CODE_BYTES // len(character.encode()))
        escaped = "".join(f"\\u{unit:04x}" for unit in memoryview(code.encode("utf-16-le")).cast("H"))
        body = f'{{"payload": {{"kind": "javascript", "code": "{escaped}"}}}}'.encode()
        assert len(body) <= SNIPPETS.size
        read = strict.read_run(body, SNIPPETS)
        assert isinstance(read, strict.RunRead)
        assert read.request.payload == JavaScript(code)


def test_a_large_project_is_still_read_as_one_where_none_can_be_served() -> None:
    files = [{"path": f"a/{number}", "content": "x"} for number in range(bounds.FILES)]
    payload = {"kind": "project", "files": files, "steps": ["true"] * bounds.STEPS}
    assert isinstance(strict.read_run(json.dumps({"payload": payload}).encode(), SNIPPETS), strict.RunRead)


def run(text: str) -> bytes:
    return text.replace("CODE", CODE).encode()


HOSTILE: dict[str, tuple[str, str, str]] = {
    "not an object": ("[]", "body", "must be an object"),
    "no payload": ("{}", "payload", "is required"),
    "payload null": ('{"payload": null}', "payload", "must be an object"),
    "payload list": ('{"payload": []}', "payload", "must be an object"),
    "no kind": ('{"payload": {"code": "1"}}', "payload.kind", "is required"),
    "unknown kind": ('{"payload": {"kind": "canary-7f3a"}}', "payload.kind", "must be one of"),
    "kind of other case": (
        '{"payload": {"kind": "JavaScript", "code": "1"}}',
        "payload.kind",
        "must be one of",
    ),
    "kind number": ('{"payload": {"kind": 7, "code": "1"}}', "payload.kind", "must be one of"),
    "kind list": ('{"payload": {"kind": ["javascript"], "code": "1"}}', "payload.kind", "must be one of"),
    "cell": ('{"payload": {"kind": "cell", "code": "1"}}', "payload.kind", "session"),
    "no code": ('{"payload": {"kind": "javascript"}}', "payload.code", "is required"),
    "code null": ('{"payload": {"kind": "python", "code": null}}', "payload.code", "must be a string"),
    "code number": ('{"payload": {"kind": "python", "code": 77123}}', "payload.code", "must be a string"),
    "code empty": ('{"payload": {"kind": "python", "code": ""}}', "payload.code", "must not be empty"),
    "code with NUL": ('{"payload": {"kind": "python", "code": "\\u0000"}}', "payload.code", "NUL"),
    "unknown field": ('{"payload": {CODE}, "timeout": 5}', "timeout", "is not a known field"),
    "other spelling": ('{"payload": {CODE}, "timeoutMs": 5}', "timeoutMs", "is not a known field"),
    "unknown in payload": ('{"payload": {CODE, "env": {}}}', "payload.env", "is not a known field"),
    "field named as its kind": ('{"payload": {CODE, "javascript": 1}}', "payload.javascript", "not a known"),
    "floor null": (
        '{"payload": {CODE}, "minimum_isolation": null}',
        "minimum_isolation",
        "must be 'process'",
    ),
    "floor empty": ('{"payload": {CODE}, "minimum_isolation": ""}', "minimum_isolation", "must be 'process'"),
    "floor none": (
        '{"payload": {CODE}, "minimum_isolation": "none"}',
        "minimum_isolation",
        "must be 'process'",
    ),
    "floor upper": (
        '{"payload": {CODE}, "minimum_isolation": "VM"}',
        "minimum_isolation",
        "must be 'process'",
    ),
    "floor padded": (
        '{"payload": {CODE}, "minimum_isolation": "vm "}',
        "minimum_isolation",
        "must be 'process'",
    ),
    "floor list": (
        '{"payload": {CODE}, "minimum_isolation": ["vm"]}',
        "minimum_isolation",
        "must be 'process'",
    ),
    "floor number": ('{"payload": {CODE}, "minimum_isolation": 4}', "minimum_isolation", "must be 'process'"),
    "timeout null": ('{"payload": {CODE}, "timeout_ms": null}', "timeout_ms", "must be an integer"),
    "timeout zero": ('{"payload": {CODE}, "timeout_ms": 0}', "timeout_ms", "must be at least 1"),
    "timeout negative": ('{"payload": {CODE}, "timeout_ms": -1}', "timeout_ms", "must be at least 1"),
    "timeout over": ('{"payload": {CODE}, "timeout_ms": 300001}', "timeout_ms", "must be at most 300000"),
    "timeout string": ('{"payload": {CODE}, "timeout_ms": "5000"}', "timeout_ms", "must be an integer"),
    "timeout float": ('{"payload": {CODE}, "timeout_ms": 5000.0}', "timeout_ms", "must be an integer"),
    "timeout exponent": ('{"payload": {CODE}, "timeout_ms": 5e3}', "timeout_ms", "must be an integer"),
    "timeout bool": ('{"payload": {CODE}, "timeout_ms": true}', "timeout_ms", "must be an integer"),
    "trace number": ('{"payload": {CODE}, "trace_id": 5}', "trace_id", "must be a string"),
    "grant long": (
        f'{{"payload": {{CODE, "grant_profile": "{"g" * 65}"}}}}',
        "payload.grant_profile",
        "must be at most 64 characters",
    ),
    "rule null mode": (
        '{"payload": {CODE}, "software_rule": {"mode": null, "identities": ["a"]}}',
        "software_rule.mode",
        "must be 'exact' or 'approved'",
    ),
    "rule list": ('{"payload": {CODE}, "software_rule": ["a"]}', "software_rule", "must be an object"),
    "rule no identity": (
        '{"payload": {CODE}, "software_rule": {"mode": "approved", "identities": []}}',
        "software_rule.identities",
        "must hold at least 1",
    ),
    "rule two exact": (
        '{"payload": {CODE}, "software_rule": {"mode": "exact", "identities": ["a", "b"]}}',
        "software_rule.identities",
        "must hold one identity",
    ),
    "rule twice": (
        '{"payload": {CODE}, "software_rule": {"mode": "approved", "identities": ["a", "a"]}}',
        "software_rule.identities",
        "must be distinct",
    ),
    "rule form": (
        '{"payload": {CODE}, "software_rule": {"mode": "exact", "identities": ["a b"]}}',
        "software_rule.identities.0",
        "must be 1 to 256 bytes",
    ),
    "no steps": ('{"payload": {"kind": "project"}}', "payload.steps", "is required"),
    "zero steps": ('{"payload": {"kind": "project", "steps": []}}', "payload.steps", "must hold at least 1"),
    "steps text": ('{"payload": {"kind": "project", "steps": "ls"}}', "payload.steps", "must be a list"),
    "many steps": (
        json.dumps({"payload": {"kind": "project", "steps": ["a"] * 21}}),
        "payload.steps",
        "must hold at most 20",
    ),
    "path up": (
        '{"payload": {"kind": "project", "steps": ["a"], "files": [{"path": "../canary-7f3a", "content": ""}]}}',
        "payload.files.0.path",
        "must be relative",
    ),
    "bad base64": (
        (
            '{"payload": {"kind": "project", "steps": ["a"], '
            '"files": [{"path": "a", "content": "canary-7f3a!", "content_encoding": "base64"}]}}'
        ),
        "payload.files.0.content",
        "must be valid base64",
    ),
    "file twice": (
        (
            '{"payload": {"kind": "project", "steps": ["a"], '
            '"files": [{"path": "a", "content": ""}, {"path": "a", "content": ""}]}}'
        ),
        "payload.files",
        "must hold no duplicate path",
    ),
    "file no object": (
        '{"payload": {"kind": "project", "steps": ["a"], "files": ["a"]}}',
        "payload.files.0",
        "must be an object",
    ),
    "row of text": (
        '{"payload": {"kind": "module", "model": "m", "rows": [{"values": ["canary-7f3a"]}], "end_time": 1, "step": 1}}',
        "payload.rows.0.values.0",
        "must be a number",
    ),
    "row of bool": (
        '{"payload": {"kind": "module", "model": "m", "rows": [{"values": [true]}], "end_time": 1, "step": 1}}',
        "payload.rows.0.values.0",
        "must be a number",
    ),
    "model form": (
        '{"payload": {"kind": "module", "model": "../m", "rows": [{"values": [1]}], "end_time": 1, "step": 1}}',
        "payload.model",
        "must match",
    ),
}


@pytest.mark.parametrize(("text", "field", "rule"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_body_is_refused_by_field_and_rule(text: str, field: str, rule: str) -> None:
    refusal = strict.read_run(run(text))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.reason) == (Code.INVALID_REQUEST, Reason.REQUEST)
    assert (refusal.faults[0].field, len(refusal.faults)) == (field, 1)
    assert rule in refusal.faults[0].rule
    assert "canary" not in repr(refusal)
    assert "77123" not in repr(refusal)


def test_a_kind_that_nobody_serves_yet_is_unsupported() -> None:
    refusal = strict.read_run(b'{"payload": {"kind": "trial"}}')
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.reason) == (Code.UNSUPPORTED, Reason.UNSUPPORTED)


def read(body: dict[str, Any]) -> strict.RunRead:
    found = strict.read_run(json.dumps(body).encode())
    assert isinstance(found, strict.RunRead), found
    return found


def test_absent_and_null_fields_are_absent_in_the_request() -> None:
    payload = {"kind": "javascript", "code": "1"}
    absent = RunRequest(JavaScript("1"))
    assert read({"payload": payload}) == strict.RunRead(absent)
    nulls = {"payload": {**payload, "grant_profile": None}, "software_rule": None, "trace_id": None}
    assert read(nulls) == strict.RunRead(absent)


def test_values_that_equal_a_default_are_kept_as_sent() -> None:
    """The digest of a request covers what was sent, so a default that was sent is not one that was left out."""
    body = {
        "payload": {"kind": "python", "code": "1", "grant_profile": "g"},
        "minimum_isolation": "process",
        "timeout_ms": 30000,
        "software_rule": {"mode": "exact", "identities": ["a"]},
        "trace_id": "t-1",
    }
    rule = SoftwareRule("exact", ("a",))
    expected = RunRequest(Python("1", "g"), Tier.PROCESS, 30000, rule, "t-1")
    assert read(body) == strict.RunRead(expected)


def test_a_project_holds_exact_bytes() -> None:
    files = [
        {"path": "a", "content": "\r\n\u00e9"},
        {"path": "b", "content": "AP8=", "content_encoding": "base64"},
    ]
    payload = {"kind": "project", "files": files, "steps": ["ls"], "artifacts": ["o"]}
    expected = Project((File("a", "\r\n\u00e9".encode()), File("b", b"\x00\xff")), ("ls",), ("o",))
    assert read({"payload": payload}).request.payload == expected


def test_a_module_holds_its_rows() -> None:
    payload = {"kind": "module", "model": "m", "rows": [{"values": [1, 2.5]}], "end_time": 3, "step": 0.5}
    assert read({"payload": payload}).request.payload == Module("m", ((1.0, 2.5),), 3.0, 0.5)


@pytest.mark.parametrize("trace_id", ["", "a b", "x" * 65, "é", "a\n"])
def test_a_trace_id_of_another_form_is_dropped_whole(trace_id: str) -> None:
    found = read({"payload": {"kind": "python", "code": "1"}, "trace_id": trace_id})
    assert found.request.trace_id == ""
    assert found.trace_id_dropped is (trace_id != "")


def test_the_largest_module_is_read() -> None:
    rows = [{"values": [0.5]}] * 100_000
    payload = {"kind": "module", "model": "m", "rows": rows, "end_time": 1, "step": 1}
    request = read({"payload": payload}).request.payload
    assert isinstance(request, Module)
    assert len(request.rows) == 100_000


def test_faults_are_bounded() -> None:
    fields = {f"unknown{number}": 1 for number in range(30)}
    refusal = strict.read_run(json.dumps({"payload": {"kind": "python", "code": "1"}, **fields}).encode())
    assert isinstance(refusal, Refusal)
    assert len(refusal.faults) == 20


def test_a_body_wrong_in_every_item_costs_one_fault() -> None:
    rows = [{"values": ["x"] * 64}] * 3000
    payload = {"kind": "module", "model": "m", "rows": rows, "end_time": 1, "step": 1}
    refusal = strict.read_run(json.dumps({"payload": payload}).encode())
    assert isinstance(refusal, Refusal)
    assert refusal.faults == (FieldFault("payload.rows.0.values.0", "must be a number"),)


def test_read_model_reads_any_model() -> None:
    read = strict.read_model(rest.SoftwareRuleBody, {"mode": "exact", "identities": ["a"]})
    assert read == rest.SoftwareRuleBody(mode="exact", identities=["a"])
