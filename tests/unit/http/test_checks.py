"""Rules on headers, one by one."""

from collections.abc import Callable

import pytest

from app.http import checks
from plimsoll.contract.refusals import Code, Reason, Refusal

Headers = list[tuple[bytes, bytes]]


def headers(**values: str) -> Headers:
    return [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in values.items()]


def values(**given: str) -> dict[bytes, str]:
    return checks.values_of(headers(**given))


@pytest.mark.parametrize("name", sorted(checks.SINGLE))
def test_a_decisive_header_is_sent_once(name: bytes) -> None:
    refusal = checks.repeated([(name, b"a"), (b"x", b"1"), (b"x", b"2"), (name, b"a")])
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (Code.INVALID_HEADER, Reason.REQUEST)
    assert checks.repeated([(name, b"a"), (b"x", b"1"), (b"x", b"2")]) is None


HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]", "proxy.example:8443"})
GOOD_HOSTS = [
    "localhost",
    "LOCALHOST",
    "localhost:8746",
    "127.0.0.1:1",
    "[::1]",
    "[::1]:8746",
    "proxy.example:8443",
]
BAD_HOSTS = [
    "", "evil.example", "localhost.evil.example", "evil.example:localhost", "localhost:", "localhost:8746:1", "::1",
    "user@localhost", "localhost/", "localhost,evil.example", "localhost evil", "localhost.", "proxy.example",
    "proxy.example:80", "127.0.0.1.", "0x7f.1", "localhost\x00", "[::1", "localhost:port", "localhost:123456",
]  # fmt: skip


@pytest.mark.parametrize("host", GOOD_HOSTS)
def test_an_allowed_host_passes(host: str) -> None:
    assert checks.foreign_host(values(host=host), HOSTS) is None


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_any_other_host_is_refused(host: str) -> None:
    refusal = checks.foreign_host(values(host=host), HOSTS)
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (Code.HOST_NOT_ALLOWED, Reason.REQUEST)
    assert checks.foreign_host({}, HOSTS) == refusal


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"origin": "http://localhost:8746"},
        {"origin": "https://LOCALHOST:8746"},
        {"sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "none"},
    ],
)
def test_our_own_pages_and_programs_pass(given: dict[str, str]) -> None:
    assert checks.cross_origin(values(host="localhost:8746", **given)) is None


@pytest.mark.parametrize(
    "given",
    [
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://localhost"},
        {"origin": "http://localhost:8747"},
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:8746.evil.example"},
        {"origin": "file://localhost:8746"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": ""},
        {"origin": "http://localhost:8746", "sec_fetch_site": "cross-site"},
    ],
)
def test_pages_of_another_origin_are_refused(given: dict[str, str]) -> None:
    refusal = checks.cross_origin(values(host="localhost:8746", **given))
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (Code.CROSS_ORIGIN, Reason.PERMISSION)


@pytest.mark.parametrize("name", ["forwarded", "via", "x_forwarded_for", "x_forwarded_anything", "x_real_ip"])
def test_a_forwarded_request_is_recognised(name: str) -> None:
    refusal = checks.forwarded(values(host="localhost", **{name: ""}))
    assert refusal is not None
    assert refusal.reason is Reason.PERMISSION
    assert checks.forwarded(values(host="localhost")) is None


@pytest.mark.parametrize(
    ("sent", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc", "abc"),
        ("Basic abc", None),
        ("Bearer", None),
        ("Bearer a b", None),
    ],
)
def test_a_bearer_token_is_found(sent: str, token: str | None) -> None:
    assert checks.bearer_token(values(authorization=sent)) == token


JSON_TYPES = [
    "application/json",
    "Application/JSON",
    "application/json; charset=utf-8",
    'application/json;charset="UTF-8"',
]
OTHER_TYPES = [
    "", "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "application/json; charset=latin-1",
    "application/json, text/plain", "application/json; a=b", "multipart/form-data; boundary=x",
]  # fmt: skip


@pytest.mark.parametrize("sent", JSON_TYPES)
def test_json_is_read(sent: str) -> None:
    assert checks.content_type("POST", values(content_type=sent, content_length="5")) is None


@pytest.mark.parametrize("sent", OTHER_TYPES)
@pytest.mark.parametrize("body", [{"content_length": "5"}, {"transfer_encoding": "chunked"}])
def test_another_type_is_refused(sent: str, body: dict[str, str]) -> None:
    refusal = checks.content_type("PUT", values(content_type=sent, **body))
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (Code.UNSUPPORTED_MEDIA_TYPE, Reason.REQUEST)


@pytest.mark.parametrize(("method", "given"), [("POST", {}), ("POST", {"content_length": "0"}), ("GET", {})])
def test_a_request_without_a_body_needs_no_type(method: str, given: dict[str, str]) -> None:
    assert checks.content_type(method, values(**given)) is None


RULES: list[Callable[[dict[bytes, str]], Refusal | None]] = [
    lambda found: checks.foreign_host(found, HOSTS),
    checks.cross_origin,
    checks.forwarded,
    lambda found: checks.content_type("POST", found),
]


@pytest.mark.parametrize("rule", RULES)
def test_no_refusal_repeats_a_value(rule: Callable[[dict[bytes, str]], Refusal | None]) -> None:
    names = ["host", "origin", "sec_fetch_site", "via", "content_type", "content_length", "authorization"]
    refusal = rule(values(**dict.fromkeys(names, "canary-7f3a")))
    assert refusal is not None
    assert "canary" not in repr(refusal)
