"""The call and its answer as messages: one reading each, and nothing of the call in a refusal."""

import base64
import json

import pytest

from broker.message import MESSAGE_BYTES, Answered, Call, Failed, read_call, write_answer
from plimsoll.contract.grants import OUT_BYTES, CallCode

GOOD = [
    ({"method": "GET", "path": "/x"}, Call("GET", "/x")),
    ({"method": "GET", "path": "/x", "query": {"a": "1"}}, Call("GET", "/x", query=(("a", "1"),))),
    (
        {"method": "GET", "path": "/x", "query": {"a": ["1", "2"]}},
        Call("GET", "/x", query=(("a", "1"), ("a", "2"))),
    ),
    (
        {"method": "GET", "path": "/x", "headers": {"Accept": "y"}},
        Call("GET", "/x", headers=(("Accept", "y"),)),
    ),
    ({"method": "PUT", "path": "/x", "body": "é"}, Call("PUT", "/x", body="é".encode())),
    ({"method": "PUT", "path": "/x", "body": ""}, Call("PUT", "/x", body=b"")),
    (
        {"method": "PUT", "path": "/x", "body": "AP8=", "body_encoding": "base64"},
        Call("PUT", "/x", body=b"\0\xff"),
    ),
]
BAD = [
    b"",
    b"\xff",
    b"null",
    b"[]",
    b'"GET /x"',
    b"{}",
    b"[" * 100_000,
    b'{"method":"GET"}',
    b'{"path":"/x"}',
    b'{"method":"GET","path":null}',
    b'{"method":1,"path":"/x"}',
    b'{"method":"GET","path":"/x","path":"/y"}',
    b'{"method":"GET","path":"/x","p\\u0061th":"/y"}',
    b'{"method":"GET","path":"/x","query":{"a":"1","a":"2"}}',
    b'{"method":"GET","path":"/x","url":"http://evil"}',
    b'{"method":"GET","path":"/x","Path":"/y"}',
    b'{"method":"GET","path":"/x","query":"a=1"}',
    b'{"method":"GET","path":"/x","query":null}',
    b'{"method":"GET","path":"/x","query":{"a":1}}',
    b'{"method":"GET","path":"/x","query":{"a":{"b":"c"}}}',
    b'{"method":"GET","path":"/x","headers":[["a","b"]]}',
    b'{"method":"GET","path":"/x","headers":{"accept":["a"]}}',
    b'{"method":"PUT","path":"/x","body":{"a":1}}',
    b'{"method":"PUT","path":"/x","body":null}',
    b'{"method":"PUT","path":"/x","body":"\\ud800"}',
    b'{"method":"PUT","path":"/x","body":"?","body_encoding":"base64"}',
    b'{"method":"PUT","path":"/x","body":"AP8","body_encoding":"base64"}',
    b'{"method":"PUT","path":"/x","body":"x","body_encoding":"gzip"}',
    b'{"method":"PUT","path":"/x","body":"x","body_encoding":["base64"]}',
    b'{"method":"PUT","path":"/x","body_encoding":"utf-8"}',
    b'{"method":"GET","path":"/x"} {"method":"GET","path":"/y"}',
    b'{"method":"GET","path":"/x","query":{"a":' + b"9" * 5000 + b"}}",
]


@pytest.mark.parametrize(("message", "call"), GOOD)
def test_a_call_is_read_as_sent(message: dict[str, object], call: Call) -> None:
    assert read_call(json.dumps(message).encode()) == call


@pytest.mark.parametrize("message", BAD, ids=lambda message: ascii(message)[:50])
def test_a_message_with_another_reading_is_denied(message: bytes) -> None:
    found = read_call(message)
    assert isinstance(found, Failed)
    assert found.code is CallCode.DENIED
    assert "evil" not in found.reason


def test_the_largest_body_passes_and_one_byte_more_does_not() -> None:
    def sent(size: int) -> Call | Failed:
        body = base64.b64encode(bytes(size)).decode()
        return read_call(
            json.dumps({"method": "PUT", "path": "/", "body": body, "body_encoding": "base64"}).encode()
        )

    found = sent(OUT_BYTES)
    assert isinstance(found, Call)
    over = sent(OUT_BYTES + 1)
    assert isinstance(over, Failed)
    assert over.code is CallCode.TOO_LARGE


def test_a_message_over_the_cap_is_not_even_read() -> None:
    found = read_call(b" " * (MESSAGE_BYTES + 1))
    assert isinstance(found, Failed)
    assert found.code is CallCode.TOO_LARGE


@pytest.mark.parametrize(
    ("body", "encoding"), [(b"a", "utf-8"), ("é\0".encode(), "utf-8"), (b"\xff\xfe", "base64")]
)
def test_an_answer_gives_the_body_byte_for_byte(body: bytes, encoding: str) -> None:
    written = json.loads(write_answer(Answered(200, (("etag", '"7"'),), body)))
    assert (written["status"], written["headers"], written["body_encoding"]) == (
        200,
        {"etag": '"7"'},
        encoding,
    )
    text = written["body"]
    assert (base64.b64decode(text) if encoding == "base64" else text.encode()) == body


def test_a_failure_has_a_code_and_a_sentence() -> None:
    assert json.loads(write_answer(Failed(CallCode.SHED, "later", 3))) == {
        "error": {"code": "shed", "reason": "later", "retry_after_s": 3}
    }
    assert json.loads(write_answer(Failed(CallCode.BUDGET, "no more"))) == {
        "error": {"code": "budget", "reason": "no more"}
    }
