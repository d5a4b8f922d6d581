"""What has two readings is refused here as by REST: marked, and without a run. What is asked in both ways is one request."""

import base64
import json
from typing import Any

import pytest

from tests.integration.connect.conftest import Served

pytestmark = pytest.mark.component("wasm")

RUN = '"protocol":4,"javascript":{"code":"console.log(1)"}'
"""Written RUN in the bodies below."""

REFUSED: dict[str, str | bytes] = {
    "empty": "",
    "not an object": "[]",
    "not UTF-8": b'{"protocol":4,"traceId":"\xff"}',
    "trailing text": "{RUN} {}",
    "duplicate key": '{RUN,"minimumIsolation":"vm","minimumIsolation":"process"}',
    "duplicate key, deep": '{"protocol":4,"javascript":{"code":"1","code":"2"}}',
    "duplicate key, escaped": '{RUN,"timeoutMs":1,"\\u0074imeoutMs":2}',
    "two spellings": '{RUN,"minimumIsolation":"vm","minimum_isolation":"vm"}',
    "two spellings, deep": '{"protocol":4,"javascript":{"code":"1","grantProfile":"","grant_profile":""}}',
    "two spellings, one null": '{RUN,"timeoutMs":null,"timeout_ms":5}',
    "two payloads": '{RUN,"project":{"steps":["true"]}}',
    "no payload": '{"protocol":4}',
    "payload null": '{"protocol":4,"javascript":null}',
    "payload list": '{"protocol":4,"javascript":["1"]}',
    "unknown field": '{RUN,"minimumIsolationn":"vm"}',
    "unknown field, deep": '{"protocol":4,"javascript":{"code":"1","kind":"python"}}',
    "unknown field, null": '{RUN,"mustNotRun":null}',
    "a REST body": '{"payload":{"kind":"javascript","code":"1"}}',
    "a REST payload": '{"protocol":4,"payload":{"kind":"javascript","code":"1"}}',
    "a second payload by REST": '{RUN,"payload":{"kind":"javascript","code":"1"}}',
    "python": '{"protocol":4,"python":{"code":"1"}}',
    "NaN": '{RUN,"timeoutMs":NaN}',
    "Infinity": '{RUN,"timeoutMs":1e999}',
    "lone surrogate": '{"protocol":4,"javascript":{"code":"\\ud800"}}',
    "depth": '{RUN,"traceId":' + "[" * 40 + "]" * 40 + "}",
    "floor null": '{RUN,"minimumIsolation":null}',
    "floor null, other spelling": '{RUN,"minimum_isolation":null}',
    "floor empty": '{RUN,"minimumIsolation":""}',
    "floor none": '{RUN,"minimumIsolation":"none"}',
    "floor upper case": '{RUN,"minimumIsolation":"VM"}',
    "floor number": '{RUN,"minimumIsolation":4}',
    "timeout over": '{RUN,"timeoutMs":300001}',
    "timeout negative": '{RUN,"timeoutMs":-1}',
    "timeout float": '{RUN,"timeoutMs":5.0}',
    "timeout bool": '{RUN,"timeoutMs":false}',
    "timeout words": '{RUN,"timeoutMs":"5e3"}',
    "timeout padded": '{RUN,"timeoutMs":"05"}',
    "code number": '{"protocol":4,"javascript":{"code":1}}',
    "code absent": '{"protocol":4,"javascript":{}}',
    "code with NUL": '{"protocol":4,"javascript":{"code":"\\u0000"}}',
    "rule empty": '{RUN,"softwareRule":{}}',
    "rule with two modes": '{RUN,"softwareRule":{"mode":["exact","approved"],"identities":["a"]}}',
    "protocol absent": '{"javascript":{"code":"1"}}',
    "protocol null": '{"protocol":null,"javascript":{"code":"1"}}',
    "protocol string": '{"protocol":"4","javascript":{"code":"1"}}',
    "protocol float": '{"protocol":4.0,"javascript":{"code":"1"}}',
    "protocol twice": '{"protocol":4,RUN}',
    "project with a path outside": '{"protocol":4,"project":{"steps":["true"],"files":[{"path":"../a"}]}}',
    "cell in no language": '{"protocol":4,"cell":{"language":"perl","code":"1"}}',
}

UNIMPLEMENTED: dict[str, tuple[str, str]] = {
    "protocol other": ('{"protocol":3,"whatever":1}', "protocol"),
    "cell": ('{"protocol":4,"cell":{"language":"python","code":"1"}}', "unsupported"),
    "project": ('{"protocol":4,"project":{"steps":["true"],"files":[{"path":"a"}]}}', "unsupported"),
    "module": ('{"protocol":4,"module":{"model":"m","rows":[{"values":[1]}],"endTime":1,"step":1}}', "unsupported"),
}  # fmt: skip

NUMBERS = {"request": 1, "protocol": 3, "unsupported": 4}


def test_every_body_with_two_readings_is_refused_marked_and_leaves_no_run(served: Served) -> None:
    caller = served.fresh()
    for name, body in REFUSED.items():
        assert_refused(caller, name, body, 400, "invalid_argument", "request")
    for name, (body, reason) in UNIMPLEMENTED.items():
        assert_refused(caller, name, body, 501, "unimplemented", reason)
    assert caller.runs() == []


def assert_refused(caller: Served, name: str, body: str | bytes, status: int, code: str, reason: str) -> None:
    sent = body if isinstance(body, bytes) else body.replace("RUN", RUN)
    answer = caller.call("Run", sent, plimsoll_request_id="5" * 32)
    error = answer.json()
    assert (answer.status_code, error["code"]) == (status, code), name
    assert answer.headers["plimsoll-not-dispatched"] == reason, name
    (detail,) = error["details"]
    assert detail["type"] == "plimsoll.v1.NotDispatched", name
    assert base64.b64decode(detail["value"]) == bytes((8, NUMBERS[reason])), name
    assert answer.headers["plimsoll-request-id"] == "5" * 32, name
    assert answer.headers["content-type"] == "application/json", name


HEADERS: dict[str, tuple[dict[str, str], int, str, str]] = {
    "no version": ({"connect_protocol_version": ""}, 400, "invalid_argument", "request"),
    "other version": ({"connect_protocol_version": "2"}, 400, "invalid_argument", "request"),
    "protobuf": ({"content_type": "application/proto"}, 415, "invalid_argument", "request"),
    "streaming": ({"content_type": "application/connect+json"}, 415, "invalid_argument", "request"),
    "no content type": ({"content_type": ""}, 415, "invalid_argument", "request"),
    "compressed": ({"content_encoding": "gzip"}, 415, "invalid_argument", "request"),
    "foreign page": ({"origin": "http://evil.example"}, 403, "permission_denied", "permission"),
    "foreign host": ({"host": "evil.example"}, 400, "invalid_argument", "request"),
    "key": ({"idempotency_key": "a"}, 501, "unimplemented", "unsupported"),
    "events": ({"accept": "text/event-stream"}, 501, "unimplemented", "unsupported"),
    "later": ({"prefer": "respond-async"}, 501, "unimplemented", "unsupported"),
    "id": ({"plimsoll_request_id": "not an id"}, 400, "invalid_argument", "request"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_whatever_layer_refuses_a_header_answers_in_connect_form(name: str, served: Served) -> None:
    sent, status, code, reason = HEADERS[name]
    answer = served.call("Run", f"{{{RUN}}}", **sent)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["plimsoll-not-dispatched"] == reason
    assert len(answer.headers["plimsoll-request-id"]) == 32


@pytest.mark.parametrize("procedure", ["OpenSession", "SessionRun", "CloseSession", "Else", "Run/more"])
def test_what_is_not_served_is_unimplemented_and_marked(procedure: str, served: Served) -> None:
    answer = served.call(procedure, '{"protocol":4}')
    assert (answer.status_code, answer.json()["code"]) == (501, "unimplemented")
    assert answer.headers["plimsoll-not-dispatched"] == "unsupported"


def test_another_method_is_refused(served: Served) -> None:
    with served.client() as client:
        answer = client.get("/plimsoll.v1.SandboxService/Run")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["code"] == "unimplemented"


Fields = dict[str, Any]

SAME: dict[str, tuple[Fields, Fields]] = {
    "code alone": ({}, {}),
    "a floor": ({"minimumIsolation": "process"}, {"minimum_isolation": "process"}),
    "a timeout": ({"timeoutMs": 5000}, {"timeout_ms": 5000}),
    "a timeout as text": ({"timeout_ms": "5000"}, {"timeout_ms": 5000}),
    "a timeout of zero": ({"timeoutMs": 0}, {}),
    "nulls": ({"timeoutMs": None, "softwareRule": None, "traceId": None}, {"software_rule": None}),
    "a trace id": ({"traceId": "t-1"}, {"trace_id": "t-2"}),
    "a trace id that is dropped": ({"traceId": "not one"}, {}),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_request_has_one_digest_by_either_api(name: str, served: Served) -> None:
    code = "console.log('Füße \U0001f4a5')"
    wire, rest = SAME[name]
    by_connect = served.call("Run", json.dumps({"protocol": 4, "javascript": {"code": code}, **wire})).json()
    by_rest = served.running.run(code, served.token, **rest).json()
    for digest, name_in_rest in (("requestSha256", "request_sha256"), ("resultSha256", "result_sha256")):
        assert by_connect["record"][digest] == by_rest["record"][name_in_rest]
    assert base64.b64decode(by_connect["javascript"]["stdout"]).decode() == by_rest["result"]["stdout"]


@pytest.mark.parametrize(
    ("body", "status"), [("{}", 200), ('{"protocol":4}', 200), ('{"protocol":3}', 501), ('{"a":1}', 400)]
)
def test_describe_has_no_fields_and_checks_a_protocol_that_is_stated(
    body: str, status: int, served: Served
) -> None:
    assert served.call("Describe", body).status_code == status
