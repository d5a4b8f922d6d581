"""The call and its answer as messages: one reading each, and nothing of the call in a refusal."""

import base64
import json
import time
from collections.abc import Callable

import pytest

from broker.message import QUERY_VALUES, Answered, Call, Failed, read_call, write_answer
from broker.policy import Denied, decide
from plimsoll.contract.grants import ANSWER_BYTES, BACK_BYTES, MESSAGE_BYTES, OUT_BYTES, CallCode, parse_route
from plimsoll.contract.profiles import REQUEST_HEADERS

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


def message_with(member: str) -> bytes:
    """A call of a route that lists the key `page`, as long as messages may be."""
    return f'{{"method":"GET","path":"/x",{member}}}'.encode()


def filled(start: str, each: str, end: str) -> bytes:
    most = (MESSAGE_BYTES - 100) // (len(each) + 1)
    return message_with(start + ",".join([each] * most) + end)


COSTLY = {
    "a query of values": filled('"query":{"page":[', '""', "]}"),
    "a query of objects": filled('"query":{"page":[', "{}", "]}"),
    "a query of lists": filled('"query":{"page":[', "[]", "]}"),
    "a query of numbers": filled('"query":{"page":[', "1e9", "]}"),
    "a query of keys": message_with(
        '"query":{' + ",".join(f'"{number:07}":""' for number in range(MESSAGE_BYTES // 13 - 10)) + "}"
    ),
    "a query of nothing": filled('"query":{"page":[', "null", "]}"),
    "quotes in a string that does not end": message_with('"body":"' + '\\"' * (MESSAGE_BYTES // 2 - 100)),
    "headers": message_with(
        '"headers":{' + ",".join(f'"{number:07}":""' for number in range(MESSAGE_BYTES // 13 - 10)) + "}"
    ),
    "a long value": message_with(f'"query":{{"page":"{"%" * (MESSAGE_BYTES - 100)}"}}'),
    "a value of control characters": message_with(
        f'"query":{{"page":"{chr(92)}u0001{"a" * (MESSAGE_BYTES - 100)}"}}'
    ),
}


def cost(work: Callable[[], object]) -> float:
    """Seconds of this thread's own processor time, the least of three."""

    def once() -> float:
        begun = time.thread_time()
        work()
        return time.thread_time() - begun

    return min(once() for _ in range(9))


@pytest.mark.parametrize("message", COSTLY.values(), ids=COSTLY)
def test_what_no_call_can_have_costs_little_more_than_to_look_at_it(message: bytes) -> None:
    """Every run's messages are read by one process: a program that sends such ones must not keep the others waiting."""

    def judged() -> Failed | Denied | None:
        call = read_call(message)
        found = call if isinstance(call, Failed) else decide([parse_route("GET /x?page")], call)
        return found if isinstance(found, Failed | Denied) else None

    assert len(message) > MESSAGE_BYTES * 9 // 10
    assert judged() is not None
    assert cost(judged) < 6 * cost(lambda: json.loads(COSTLY["a query of values"]))


def test_the_most_parts_that_a_call_can_have_are_read() -> None:
    query = {f"key{number}": [str(number), '",[{'] for number in range(QUERY_VALUES // 2)}
    headers = dict.fromkeys(REQUEST_HEADERS, '[",{\\')
    call = {"method": "PUT", "path": "/x", "query": query, "headers": headers, "body_encoding": "utf-8"}
    body = json.dumps([{"a": [1, 2], "b": "\\"}] * 20_000)
    found = read_call(json.dumps(call | {"body": body}, indent=8).encode())
    assert isinstance(found, Call)
    assert (len(found.query), len(found.headers), found.body) == (QUERY_VALUES, 5, body.encode())


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


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        ("\U0001f600".encode() * (BACK_BYTES // 4), "utf-8"),
        ("é".encode() * (BACK_BYTES // 2), "utf-8"),
        (b'\\"' * (BACK_BYTES // 2), "utf-8"),
        (b"\xff" * BACK_BYTES, "base64"),
        (b"\0" * BACK_BYTES, "base64"),
        (b"name\0\0\0\0" * (BACK_BYTES // 8), "base64"),
    ],
    ids=["four bytes each", "two bytes each", "escaped", "no text", "nothing but NUL", "padded with NUL"],
)
def test_the_largest_body_of_any_bytes_fits_into_an_answer(body: bytes, encoding: str) -> None:
    message = write_answer(Answered(200, (), body))
    assert len(message) <= ANSWER_BYTES
    written = json.loads(message)
    assert written["body_encoding"] == encoding
    text = written["body"]
    assert (base64.b64decode(text) if encoding == "base64" else text.encode()) == body


def test_a_failure_has_a_code_and_a_sentence() -> None:
    assert json.loads(write_answer(Failed(CallCode.SHED, "later", 3))) == {
        "error": {"code": "shed", "reason": "later", "retry_after_s": 3}
    }
    assert json.loads(write_answer(Failed(CallCode.BUDGET, "no more"))) == {
        "error": {"code": "budget", "reason": "no more"}
    }
