"""A raw header, judged without a socket; the listener's tests send the same over one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.head import end_of_head, inspect_head
from app.http.limits import DEFAULTS
from plimsoll.contract.refusals import Code, Reason


def head(*lines: str, first: str = "POST /v1/runs HTTP/1.1") -> bytes:
    return "\r\n".join([first, *lines, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Host: localhost",),
        ("Content-Length: 0",),
        ("Content-Length: 16777216",),
        ("Content-Length:\t5 ",),
        ("Transfer-Encoding: Chunked",),
        ("X-Content-Length: a, b",),
    ],
)
def test_plain_headers_pass(lines: tuple[str, ...]) -> None:
    assert inspect_head(head(*lines), DEFAULTS) is None


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (("Content-Length: 16777217",), Code.BODY_TOO_LARGE),
        (("Content-Length: 999999999999999",), Code.BODY_TOO_LARGE),
        (("Content-Length: 9999999999999999",), Code.INVALID_HEADER),
        (("Content-Length: 1_0",), Code.INVALID_HEADER),
        (("Content-Length:",), Code.INVALID_HEADER),
        (("Content-Length: \xb2",), Code.INVALID_HEADER),
        (("content-length: 5", "CONTENT-LENGTH: 5"), Code.INVALID_HEADER),
        (("Content-Length : 5", "Content-Length: 5"), Code.INVALID_HEADER),
        (("Content-Encoding: identity",), Code.UNSUPPORTED_MEDIA_TYPE),
        (("X: " + "a" * DEFAULTS.head_bytes,), Code.HEADERS_TOO_LARGE),
        (tuple(f"X: {n}" for n in range(65)), Code.HEADERS_TOO_LARGE),
    ],
)
def test_others_are_refused(lines: tuple[str, ...], code: Code) -> None:
    refusal = inspect_head(head(*lines), DEFAULTS)
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (code, Reason.REQUEST)


def test_chunks_need_http_1_1() -> None:
    old = head("Transfer-Encoding: chunked", first="POST /v1/runs HTTP/1.0")
    assert inspect_head(old, DEFAULTS) is not None
    assert inspect_head(head("Content-Length: 5", first="POST /v1/runs HTTP/1.0"), DEFAULTS) is None


@pytest.mark.parametrize(
    "first",
    [
        "",
        "GET",
        "GET /",
        "get / HTTP/1.1",
        "GET * HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET / HTTP/1.11",
        "G / HTTP/0.9",
        "GET /a b HTTP/1.1",
        "GET /v1/runs%0a HTTP/1.1",
        "GET /%76%31/runs HTTP/1.1",
        "GET /% HTTP/1.1",
    ],
)
def test_another_request_line_is_refused(first: str) -> None:
    assert inspect_head(head(first=first), DEFAULTS) is not None


def test_a_query_may_hold_a_percent_sign() -> None:
    assert inspect_head(head(first="GET /v1/runs?cursor=a%3D%3F HTTP/1.1"), DEFAULTS) is None


def test_the_end_is_found_once_it_is_there() -> None:
    whole = head("Host: a")
    assert all(end_of_head(whole[:cut]) is None for cut in range(len(whole)))
    assert end_of_head(whole + b"body") == len(whole)
    assert end_of_head(b"GET / HTTP/1.1\n\nbody") == 16


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    inspect_head(data, DEFAULTS)
    inspect_head(b"GET / HTTP/1.1\r\n" + data + b"\r\n\r\n", DEFAULTS)
