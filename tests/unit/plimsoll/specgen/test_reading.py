"""What a document is read as, and what is reported of it instead of dropped."""

from typing import Any

import pytest

from plimsoll.contract.grants import ROUTES, GrantFault
from plimsoll.contract.profiles import REQUEST_HEADERS
from plimsoll.specgen import Reading, SpecFault, parse_server, read
from plimsoll.specgen.model import HEADERS
from tests.support.openapi_documents import document, one, parameter

JSON_BODY = {"content": {"application/json": {"schema": {"type": "object"}}}}


def effects(reading: Reading) -> list[tuple[str, str, str]]:
    return [(each.effect, each.rule, each.pointer) for each in reading.findings]


def allow(whole: dict[str, Any], **how: Any) -> tuple[str, ...]:
    return read(whole, **how).api.allow


def test_a_plain_document_is_read_whole() -> None:
    whole = document(
        {
            "/v1/employees": {
                "post": {"requestBody": JSON_BODY},
                "get": {"parameters": [parameter("limit"), parameter("page")]},
            },
            "/v1/employees/{id}/": {"parameters": [parameter("id", "path")], "delete": {}, "x-owner": "hr"},
        }
    )
    reading = read(whole)
    assert reading.api.allow == (
        "GET /v1/employees?limit&page",
        "POST /v1/employees",
        "DELETE /v1/employees/*/",
    )
    assert str(reading.api.origin) == "https://hr.example.com"
    assert reading.findings == ()
    assert reading.complete


def test_the_order_of_members_changes_nothing() -> None:
    paths: dict[str, Any] = {"/b": {"post": {}, "get": {}}, "/a": {"get": {}}}
    turned = {path: dict(reversed(item.items())) for path, item in reversed(paths.items())}
    assert read(document(turned)) == read(document(paths))


LEFT_OUT: list[tuple[str, str, dict[str, Any], str]] = [
    ("a parameter inside a segment", "/v1/{id}.json", {}, "path"),
    ("two parameters in a segment", "/v1/{a}-{b}", {}, "path"),
    ("a parameter twice", "/v1/{a}/{a}", {}, "path"),
    ("an open brace", "/v1/{id", {}, "path"),
    ("an empty parameter", "/v1/{}", {}, "path"),
    ("a parameter that spans segments", "/v1/{a/b}", {}, "path"),
    ("an empty segment", "/v1//a", {}, "path"),
    ("a dot segment", "/v1/../a", {}, "path"),
    ("a percent sign", "/v1/%2e%2e", {}, "path"),
    ("a star", "/v1/*", {}, "path"),
    ("a query in the path", "/v1/a?b", {}, "path"),
    ("a fragment", "/v1/a#b", {}, "path"),
    ("a semicolon", "/v1/a;b", {}, "path"),
    ("a colon", "/v1/a:b", {}, "path"),
    ("a letter beyond ASCII", "/v1/\u0435", {}, "path"),
    ("a segment too long", "/" + "x" * 129, {}, "path"),
    ("no slash in front", "v1", {}, "path"),
    ("too many segments", "/a" * 33, {}, "route"),
    ("a required cookie", "/a", {"parameters": [parameter("s", "cookie", required=True)]}, "cookie"),
    ("a required header", "/a", {"parameters": [parameter("X-A", "header", required=True)]}, "header"),
    ("a required key with a blank", "/a", {"parameters": [parameter("a b", required=True)]}, "query"),
    ("an object in the query", "/a", {"parameters": [parameter("f", kind="object", required=True)]}, "query"),
    ("a list in the path", "/{a}", {"parameters": [parameter("a", "path", "array")]}, "path"),
    ("a matrix in the path", "/{a}", {"parameters": [parameter("a", "path", style="matrix")]}, "path"),
    (
        "a list with commas",
        "/a",
        {"parameters": [parameter("f", kind="array", required=True, explode=False)]},
        "query",
    ),
    (
        "reserved characters",
        "/a",
        {"parameters": [parameter("f", required=True, allowReserved=True)]},
        "query",
    ),
    (
        "JSON in the query",
        "/a",
        {"parameters": [{"name": "f", "in": "query", "required": True, "content": {"application/json": {}}}]},
        "query",
    ),
    ("too many query keys", "/a", {"parameters": [parameter(f"k{n}") for n in range(33)]}, "query"),
    ("a form", "/a", {"requestBody": {"required": True, "content": {"multipart/form-data": {}}}}, "body"),
    ("any media type", "/a", {"requestBody": {"required": True, "content": {"*/*": {}}}}, "body"),
    ("servers of its own", "/a", {"servers": [{"url": "https://other.example.com"}]}, "server"),
    ("a parameter elsewhere", "/a", {"parameters": [{"$ref": "other.json#/p"}]}, "ref"),
    ("a body elsewhere", "/a", {"requestBody": {"$ref": "https://example.com/b"}}, "ref"),
    ("an anchor", "/a", {"parameters": [{"$ref": "#p"}]}, "ref"),
]


@pytest.mark.parametrize(
    ("path", "operation", "rule"), [row[1:] for row in LEFT_OUT], ids=[row[0] for row in LEFT_OUT]
)
def test_an_operation_that_cannot_be_expressed_is_left_out_and_reported(
    path: str, operation: dict[str, Any], rule: str
) -> None:
    reading = read(document({path: {"post": operation}, "/other": {"get": {}}}))
    assert reading.api.allow == ("GET /other",)
    assert ("left out", rule) in {(each.effect, each.rule) for each in reading.findings}
    assert not reading.complete
    assert all(each.pointer.isascii() and each.detail.isascii() for each in reading.findings)


@pytest.mark.parametrize("verb", ["head", "options", "trace"])
def test_methods_that_a_guest_has_no_function_for_are_left_out(verb: str) -> None:
    assert effects(read(document({"/a": {verb: {}, "get": {}}}))) == [
        ("left out", "method", f"#/paths/~1a/{verb}")
    ]


PARTIAL: list[tuple[str, dict[str, Any], str]] = [
    ("a cookie", {"parameters": [parameter("s", "cookie")]}, "cookie"),
    ("a header", {"parameters": [parameter("X-A", "header")]}, "header"),
    ("a deep object", {"parameters": [parameter("f", kind="object", style="deepObject")]}, "query"),
    ("a body of bytes", {"requestBody": {"content": {"application/octet-stream": {}}}}, "body"),
    (
        "a second media type",
        {"requestBody": {"content": {"application/json": {}, "application/xml": {}}}},
        "body",
    ),
    ("an answer of bytes", {"responses": {"200": {"content": {"application/pdf": {}}}}}, "answer"),
    ("an answer elsewhere", {"responses": {"200": {"$ref": "other.json"}}}, "ref"),
    ("a member nobody knows", {"paramaters": []}, "unknown"),
    ("a parameter's member nobody knows", {"parameters": [parameter("a", shema={})]}, "unknown"),
]


@pytest.mark.parametrize(("operation", "rule"), [row[1:] for row in PARTIAL], ids=[row[0] for row in PARTIAL])
def test_what_an_operation_can_do_without_is_reported(operation: dict[str, Any], rule: str) -> None:
    reading = read(one("/a", "post", **operation))
    assert len(reading.api.operations) == 1
    assert [(each.effect, each.rule) for each in reading.findings] == [("partial", rule)]
    assert not reading.complete


def test_a_get_with_a_body_is_called_without_it_or_not_at_all() -> None:
    assert effects(read(one("/a", requestBody=JSON_BODY))) == [
        ("partial", "body", "#/paths/~1a/get/requestBody")
    ]
    with pytest.raises(SpecFault, match="a call with GET has no body"):
        read(one("/a", requestBody={**JSON_BODY, "required": True}))


def test_what_belongs_to_no_operation_is_reported() -> None:
    whole = one("/a", callbacks={"done": {}})
    whole |= {
        "webhooks": {"new": {"post": {}}},
        "channels": {},
        "components": {
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "query", "name": "k"},
                "login": {"type": "oauth2", "flows": {}},
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
                "elsewhere": {"$ref": "other.json"},
            }
        },
    }
    schemes = "#/components/securitySchemes"
    assert set(effects(read(whole))) == {
        ("left out", "callback", "#/paths/~1a/get/callbacks"),
        ("left out", "webhook", "#/webhooks/new"),
        ("partial", "unknown", "#"),
        ("partial", "security", f"{schemes}/key"),
        ("partial", "security", f"{schemes}/login"),
        ("partial", "security", f"{schemes}/basic"),
        ("note", "security", f"{schemes}/bearer"),
        ("note", "security", f"{schemes}/header"),
        ("partial", "ref", f"{schemes}/elsewhere"),
    }


def test_notes_leave_nothing_out() -> None:
    reading = read(one("/{a}", operationId="class", parameters=[parameter("Accept", "header")], security=[]))
    assert {each.effect for each in reading.findings} == {"note"}
    assert reading.complete
    assert reading.api.operations[0].name == "class_"


def test_an_operations_parameter_takes_the_place_of_its_paths() -> None:
    own = {"name": "a", "in": "query", "required": True, "schema": {"type": "integer"}}
    (operation,) = read(
        document({"/a": {"parameters": [parameter("a")], "get": {"parameters": [own]}}})
    ).api.operations
    (found,) = operation.parameters
    assert (found.kind.value, found.required) == ("integer", True)


def test_local_references_are_followed() -> None:
    whole = document(
        {
            "/a": {"$ref": "#/components/pathItems/a"},
            "/b": {"get": {"parameters": [{"$ref": "#/paths/~1a~0/x-p"}]}},
            "/a~": {"x-p": parameter("never"), "$ref": "#/components/pathItems/b"},
        },
        components={
            "pathItems": {
                "a": {"get": {"parameters": [{"$ref": "#/components/parameters/p%20q"}]}},
                "b": {"get": {}},
            },
            "parameters": {"p q": {"$ref": "#/components/parameters/r"}, "r": parameter("limit")},
        },
    )
    assert allow(whole) == ("GET /a?limit", "GET /a~", "GET /b?never")


def test_what_stands_beside_a_paths_reference_is_reported() -> None:
    whole = document({"/a": {"$ref": "#/paths/~1b", "post": {}, "summary": "x"}, "/b": {"get": {}}})
    assert effects(read(whole)) == [("left out", "ref", "#/paths/~1a/post")]


def test_a_chosen_operation_alone_is_allowed() -> None:
    whole = document({"/a": {"get": {"operationId": "one"}, "post": {}}, "/b": {"get": {}, "put": {}}})
    assert allow(whole, only=["one"]) == ("GET /a",)
    assert allow(whole, only=["GET"]) == ("GET /a", "GET /b")
    assert allow(whole, only=["PUT /b", "one"]) == ("GET /a", "PUT /b")
    with pytest.raises(SpecFault, match="--only 'GET /c' names no operation"):
        read(whole, only=["GET", "GET /c"])


def test_a_wildcard_that_approves_more_than_was_asked_for_is_reported() -> None:
    whole = document(
        {"/u/{id}": {"get": {}}, "/u/admin": {"get": {}, "head": {}}, "/u/{id}.csv": {"get": {}}}
    )
    reading = read(whole, only=["GET /u/{id}"])
    assert effects(reading)[-1] == ("wider", "wildcard", "#/paths/~1u~1admin/get")
    assert not reading.complete


def test_a_path_that_a_literal_route_does_not_reach_is_no_finding() -> None:
    whole = document({"/u/{id}": {"get": {}}, "/u/me": {"get": {}}})
    assert effects(read(whole, only=["GET /u/me"])) == []


SERVERS: list[tuple[list[dict[str, Any]] | None, str | None, str, int]] = [
    ([{"url": "https://hr.example.com:443/"}], "https://hr.example.com", "GET /a", 0),
    ([{"url": "https://hr.example.com:8443/api/v2/"}], "https://hr.example.com:8443", "GET /api/v2/a", 0),
    ([{"url": "http://127.0.0.1:8000"}], "http://127.0.0.1:8000", "GET /a", 0),
    ([{"url": "/api"}], None, "GET /api/a", 1),
    (None, None, "GET /a", 1),
    ([], None, "GET /a", 1),
    ([{"url": "http://hr.example.com"}], None, "GET /a", 2),
    ([{"url": "https://u:p@hr.example.com"}], None, "GET /a", 2),
    ([{"url": "https://{x}.example.com", "variables": {}}], None, "GET /a", 2),
    ([{"url": "https://hr.example.com?a"}], None, "GET /a", 2),
    ([{"url": "https://hr.example.com/a%20b"}], None, "GET /a", 2),
    ([{"url": "https://[::1"}], None, "GET /a", 2),
    (
        [{"url": "https://a.example.com"}, {"url": "https://b.example.com"}],
        "https://a.example.com",
        "GET /a",
        1,
    ),
]


@pytest.mark.parametrize(("listed", "origin", "route", "findings"), SERVERS, ids=lambda each: str(each)[:50])
def test_the_origin_is_the_first_server_that_a_grant_can_have(
    listed: list[dict[str, Any]] | None, origin: str | None, route: str, findings: int
) -> None:
    whole = one("/a", operationId="a")
    del whole["servers"]
    reading = read(whole if listed is None else whole | {"servers": listed})
    assert (reading.api.origin and str(reading.api.origin)) == origin
    assert reading.api.allow == (route,)
    assert [(each.effect, each.rule) for each in reading.findings] == [("partial", "server")] * findings


def test_servers_with_different_paths_must_be_chosen_from() -> None:
    whole = one("/a") | {
        "servers": [{"url": "https://a.example.com/v1"}, {"url": "https://a.example.com/v2"}]
    }
    with pytest.raises(SpecFault, match="choose one with --server"):
        read(whole)
    reading = read(whole, server=parse_server("https://a.example.com/v2"))
    assert (reading.api.allow, reading.findings) == (("GET /v2/a",), ())


@pytest.mark.parametrize(
    "url", ["", "/a", "hr.example.com", "http://hr.example.com", "https://h/?q", "https://h/..", "//h"]
)
def test_a_server_that_an_operator_names_must_be_one(url: str) -> None:
    with pytest.raises(GrantFault):
        parse_server(url)


def test_the_root_below_a_servers_path_has_its_slash() -> None:
    assert allow(one("/")) == ("GET /",)
    assert allow(one("/"), server=parse_server("https://hr.example.com/api")) == ("GET /api/",)


def test_more_operations_than_a_grant_has_routes_must_be_chosen_from() -> None:
    whole = document({f"/{n}": {"get": {"operationId": f"o{n}"}} for n in range(ROUTES + 1)})
    with pytest.raises(SpecFault, match=f"at most {ROUTES} routes, not {ROUTES + 1}: choose with --only"):
        read(whole)
    assert len(allow(whole, only=["o1", "o2"])) == 2


def test_the_headers_are_those_that_the_broker_lets_through() -> None:
    assert {*HEADERS, "content-type", "accept"} == REQUEST_HEADERS
