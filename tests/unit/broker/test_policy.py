"""A table of what guests try: everything but the exact calls of the grant is denied, under the right rule."""

import pytest

from broker.message import Call, Pairs
from broker.policy import Allowed, Denied, Rule, decide
from plimsoll.contract.grants import METHODS, parse_route

ROUTES = tuple(
    parse_route(text)
    for text in (
        "GET /v1/employees?page&limit",
        "GET /v1/employees/*",
        "PATCH /v1/employees/*/name",
        "POST /v1/reports/",
        "GET /v1/Search?q&filter[name]",
        "GET /v1/employees/*?fields",
        "DELETE /",
    )
)

HOSTILE_PATHS = [
    "",
    "v1/employees",
    "*",
    "/v1/employees/",
    "//v1/employees",
    "/v1//employees",
    "/v1/employees//7",
    "/v1/employees/./7",
    "/v1/employees/../employees",
    "/v1/employees/..",
    "/v1/employees/.",
    "/v1/employees/...",
    "/v1/employees/7/../../secrets",
    "/./v1/employees",
    "/../v1/employees",
    "/v1/employees/%2e%2e",
    "/v1/employees/%2E%2E/secrets",
    "/v1/employees%2f7",
    "/v1/employees/a%2fb",
    "/v1/employees/a%2Fb",
    "/v1/employees/a%5cb",
    "/v1/employees/%00",
    "/v1/employees/%0d%0aHost:%20evil",
    "/v1/employees/%252e%252e",
    "/v1/employees/%u002e",
    "/v1/employees/%",
    "/v1/employees/7;admin=1",
    "/v1/employees/;/7",
    "/v1/employees\\7",
    "/v1\\employees",
    "\\v1\\employees",
    "/v1/employees/..\\..\\secrets",
    "/v1/employees/7?admin=1",
    "/v1/employees?page=1",
    "/v1/employees?",
    "/v1/employees#top",
    "/v1/employees/7#",
    "/v1/employees/7 ",
    " /v1/employees",
    "/v1/employees/7\t",
    "/v1/employees/7\n",
    "/v1/employees\r\nHost: evil",
    "/v1/employees/7 HTTP/1.1\r\nX: y\r\n\r\nGET /v1/secrets",
    "/v1/employees/\x00",
    "/v1/employees/\x7f",
    "/v1/employees/\x85",
    "/v1/employees/é",
    "/v1/employees/\uff0e\uff0e",
    "/v1/employees/\u2024\u2024",
    "/v1/employees\u2215secrets",
    "/v1/employees/\ud800",
    "/v1/employees/\u202e7",
    "/v1/employees/@evil.example",
    "/v1/employees/a:b",
    "/v1/employees/a,b",
    "/v1/employees/a+b",
    "/v1/employees/a*b",
    "/v1/employees/*",
    "/v1/employees/a=b",
    "/v1/employees/a&b",
    "/v1/employees/a|b",
    "/v1/employees/{7}",
    "/v1/employees/" + "a" * 129,
    "/" + "/".join("a" * 33),
    "http://evil.example/v1/employees",
    "https://hr.example.com/v1/employees",
    "//evil.example/v1/employees",
    "/http://evil.example/",
    "https:/v1/employees",
    "file:///etc/passwd",
]
UNLISTED = [
    "/",
    "/v1",
    "/V1/employees",
    "/v1/Employees",
    "/v1/employee",
    "/v1/employees.json",
    "/v1/employees.",
    "/v1/employees~",
    "/v1/employees/7/name",
    "/v1/employees/7/8",
    "/v1/reports",
    "/v1/search",
    "/v2/employees",
]
HOSTILE_METHODS = [
    "get",
    "Get",
    "CONNECT",
    "TRACE",
    "OPTIONS",
    "PROPFIND",
    "PRI",
    "",
    "GET ",
    " GET",
    "GET /x",
    "G\u0395T",
]
HOSTILE_HEADERS: list[Pairs] = [
    (("host", "evil.example"),),
    (("Host", "hr.example.com"),),
    (("authorization", "Bearer mine"),),
    (("Proxy-Authorization", "Basic eA=="),),
    (("cookie", "a=b"),),
    (("Connection", "close"),),
    (("connection", "content-type"),),
    (("keep-alive", "timeout=5"),),
    (("Transfer-Encoding", "chunked"),),
    (("Content-Length", "0"),),
    (("te", "trailers"),),
    (("trailer", "x"),),
    (("upgrade", "h2c"),),
    (("expect", "100-continue"),),
    (("range", "bytes=0-1"),),
    (("accept-encoding", "gzip"),),
    (("X-Forwarded-For", "127.0.0.1"),),
    (("x-http-method-override", "DELETE"),),
    (("x-original-url", "/admin"),),
    (("Forwarded", "for=127.0.0.1"),),
    (("origin", "https://hr.example.com"),),
    (("user-agent", "x"),),
    (("", "x"),),
    (("accept ", "x"),),
    ((" accept", "x"),),
    (("accept:", "x"),),
    (("accept\r\nhost", "x"),),
    (("accept_", "x"),),
    (("idempotency\u2010key", "x"),),
    (("idempotency-\u212aey", "x"),),
    (("accept", "a\r\nhost: evil"),),
    (("accept", "a\nb"),),
    (("accept", "a\x00b"),),
    (("accept", "a\tb"),),
    (("accept", " a"),),
    (("accept", "a "),),
    (("accept", ""),),
    (("accept", "é"),),
    (("accept", "\x7f"),),
    (("accept", "a" * 1025),),
    (("accept", "a"), ("Accept", "b")),
]
HOSTILE_QUERIES: list[Pairs] = [
    (("admin", "1"),),
    (("page", "1"), ("admin", "1")),
    (("Page", "1"),),
    (("page ", "1"),),
    (("", ""),),
    (("page", "1\n2"),),
    (("page", "\x00"),),
    (("page", "\x85"),),
    (("page", "\ud800"),),
    (("page", "a" * 4096),),
    (("page", "€" * 1000),),
    tuple(("page", str(number)) for number in range(65)),
]


def denied(call: Call) -> Rule:
    found = decide(ROUTES, call)
    assert isinstance(found, Denied), found
    return found.code


@pytest.mark.parametrize("path", HOSTILE_PATHS, ids=ascii)
def test_a_path_that_is_not_plain_is_denied(path: str) -> None:
    assert {denied(Call(method, path)) for method in METHODS} <= {Rule.PATH, Rule.ROUTE}
    if path != "/v1/employees/":
        assert denied(Call("GET", path)) is Rule.PATH


@pytest.mark.parametrize("path", UNLISTED)
def test_a_plain_path_that_no_route_lists_is_denied(path: str) -> None:
    assert denied(Call("GET", path)) is Rule.ROUTE


@pytest.mark.parametrize("method", HOSTILE_METHODS)
def test_another_method_is_denied(method: str) -> None:
    assert denied(Call(method, "/v1/employees")) is Rule.METHOD


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "PATCH"])
def test_a_method_the_route_does_not_have_is_denied(method: str) -> None:
    assert denied(Call(method, "/v1/employees")) is Rule.ROUTE


@pytest.mark.parametrize("headers", HOSTILE_HEADERS, ids=ascii)
def test_a_header_off_the_list_or_not_plain_is_denied(headers: Pairs) -> None:
    assert denied(Call("GET", "/v1/employees", headers=headers)) is Rule.HEADER


@pytest.mark.parametrize("query", HOSTILE_QUERIES, ids=lambda query: ascii(query)[:40])
def test_a_query_the_route_does_not_list_is_denied(query: Pairs) -> None:
    assert denied(Call("GET", "/v1/employees", query=query)) is Rule.QUERY


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_read_with_a_body_is_denied(method: str) -> None:
    assert denied(Call(method, "/v1/employees", body=b"")) is Rule.BODY


def test_a_denial_repeats_nothing_of_the_call() -> None:
    calls = [
        Call("GET", "/canary%2f"),
        Call("canary", "/"),
        Call("GET", "/v1/employees", query=(("canary", "1"),)),
    ]
    calls += [Call("GET", "/v1/employees", headers=(("canary", "1"),)), Call("GET", "/canary")]
    for call in calls:
        assert "canary" not in repr(decide(ROUTES, call))
        assert "canary" not in repr(call)


ALLOWED = [
    ("GET", "/v1/employees", (), "/v1/employees", "GET /v1/employees?page&limit"),
    ("GET", "/v1/employees", (("limit", "5"), ("page", "2")), "/v1/employees?page=2&limit=5", None),
    (
        "GET",
        "/v1/employees",
        (("page", "a&b=c#%/?é +"),),
        "/v1/employees?page=a%26b%3Dc%23%25%2F%3F%C3%A9%20%2B",
        None,
    ),
    ("GET", "/v1/employees", (("page", ""),), "/v1/employees?page=", None),
    ("GET", "/v1/employees", (("page", "1"), ("page", "2")), "/v1/employees?page=1&page=2", None),
    ("GET", "/v1/employees/7", (), "/v1/employees/7", "GET /v1/employees/*"),
    ("GET", "/v1/employees/7", (("fields", "a"),), "/v1/employees/7?fields=a", "GET /v1/employees/*?fields"),
    ("GET", "/v1/employees/..a", (), "/v1/employees/..a", None),
    ("GET", "/v1/employees/~a_b-c.d", (), "/v1/employees/~a_b-c.d", None),
    ("GET", "/v1/employees/" + "a" * 128, (), "/v1/employees/" + "a" * 128, None),
    ("PATCH", "/v1/employees/7/name", (), "/v1/employees/7/name", "PATCH /v1/employees/*/name"),
    ("POST", "/v1/reports/", (), "/v1/reports/", "POST /v1/reports/"),
    ("GET", "/v1/Search", (("filter[name]", "x"),), "/v1/Search?filter%5Bname%5D=x", None),
    ("DELETE", "/", (), "/", "DELETE /"),
]


@pytest.mark.parametrize(("method", "path", "query", "target", "route"), ALLOWED)
def test_the_exact_calls_of_the_grant_are_allowed(
    method: str, path: str, query: Pairs, target: str, route: str | None
) -> None:
    found = decide(ROUTES, Call(method, path, query=query))
    assert isinstance(found, Allowed), found
    assert (found.path, found.target) == (path, target)
    assert route is None or str(found.route) == route


def test_the_headers_of_the_list_pass_under_their_plain_names() -> None:
    headers = (("Accept", "application/json; q=1"), ("If-Match", '"7"'), ("Idempotency-Key", "k"))
    found = decide(ROUTES, Call("GET", "/v1/employees", headers=headers))
    assert isinstance(found, Allowed)
    assert found.headers == (
        ("accept", "application/json; q=1"),
        ("idempotency-key", "k"),
        ("if-match", '"7"'),
    )


def test_without_routes_nothing_is_allowed() -> None:
    found = decide((), Call("GET", "/v1/employees"))
    assert isinstance(found, Denied)


def test_the_table_is_as_long_as_promised() -> None:
    assert len(HOSTILE_PATHS) + len(HOSTILE_METHODS) + len(HOSTILE_HEADERS) + len(HOSTILE_QUERIES) >= 60
