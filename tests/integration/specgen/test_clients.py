"""Generated clients make the calls that the document describes, the same in every interpreter, and leave one name behind."""

from typing import Any

import pytest

from plimsoll.contract.grants import SEGMENT
from plimsoll.specgen import Outputs, read, write
from tests.integration.specgen.conftest import Guest
from tests.integration.specgen.interpreters import Inputs, Seen
from tests.support.openapi_documents import HOSTILE, document, one, parameter

pytestmark = [pytest.mark.component("wasm"), pytest.mark.component("seccomp")]


@pytest.fixture
def everywhere(wasm: Guest, python: Guest, plain_javascript: Guest | None) -> Any:
    """What every interpreter saw, which must be the same."""

    def run(whole: dict[str, Any], inputs: Inputs) -> Seen:
        made = made_of(whole)
        first = python(made.python, inputs)
        assert wasm(made.javascript, inputs) == first
        if plain_javascript is not None:
            assert plain_javascript(made.javascript, inputs) == first
        assert first.made == ["api"]
        assert first.polluted == []
        return first

    return run


def made_of(whole: dict[str, Any]) -> Outputs:
    return write(read(whole).api, "hr")


def call(method: str, path: str, **more: Any) -> dict[str, Any]:
    return {"method": method, "path": path, "query": {}, "headers": {}, "body": None} | more


def test_a_call_has_its_path_its_query_and_its_headers(everywhere: Any) -> None:
    whole = one(
        "/v1/employees/{employeeId}",
        operationId="getEmployee",
        parameters=[
            parameter("employeeId", "path", "integer"),
            parameter("page", kind="integer"),
            {"name": "tag", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
            parameter("If-None-Match", "header"),
        ],
    )
    seen = everywhere(
        whole,
        [
            ("get_employee", {"employee_id": 7}),
            ("get_employee", {"employee_id": 7, "page": 2, "tag": ["a", "b"], "if_none_match": '"x"'}),
            ("get_employee", {"employee_id": 7, "page": None, "tag": []}),
        ],
    )
    bare = call("GET", "/v1/employees/7")
    more = call(
        "GET", "/v1/employees/7", query={"page": "2", "tag": ["a", "b"]}, headers={"if-none-match": '"x"'}
    )
    assert [each["calls"] for each in seen.ends] == [[bare], [more], [bare]]
    assert all((each["status"], each["body"], each["json"]) == (200, "[1]", [1]) for each in seen.ends)


@pytest.mark.parametrize("key", ["__proto__", "constructor", "toString", "filter[a]", "1"])
def test_a_query_key_may_be_what_objects_have_already(key: str, everywhere: Any) -> None:
    (operation,) = read(whole := one(parameters=[parameter(key)])).api.operations
    seen = everywhere(whole, [(operation.name, {operation.parameters[0].name: "v"}), (operation.name, {})])
    with_it = call("GET", "/v1/employees", query={key: "v"})
    assert [each["calls"] for each in seen.ends] == [[with_it], [call("GET", "/v1/employees")]]


def test_a_json_body_is_the_same_bytes_in_every_language(everywhere: Any) -> None:
    whole = one(verb="put", requestBody={"content": {"application/json": {"schema": {}}}})
    bodies: list[Any] = [
        {
            "b": 1,
            "a": [1.0, -0.0, 1e21, 1e20, 1.5e20, 1e16, 1e-7, 0.1, 5e-324, 123456.789, -2.5e-6, 2**53 - 1],
        },
        {"10": 0, "9": 0, "\uffff": 0, "\U0001f600": 0, "__proto__": {"x": 1}, "constructor": None},
        '\u2028\x00\x7f"\\\n\U0001f600',
        None,
        [],
        True,
    ]
    seen = everywhere(whole, [("put_v1_employees", {"body": each}) for each in bodies])
    sent = [each["calls"][0]["body"] for each in seen.ends]
    assert sent == [
        '{"a":[1,0,1e+21,100000000000000000000,150000000000000000000,10000000000000000,1e-7,0.1,5e-324,123456.789,-0.0000025,9007199254740991],"b":1}',
        '{"10":0,"9":0,"__proto__":{"x":1},"constructor":null,"\U0001f600":0,"\uffff":0}',
        '"\u2028\\u0000\x7f\\"\\\\\\n\U0001f600"',
        "null",
        "[]",
        "true",
    ]
    assert all(each["calls"][0]["headers"] == {"content-type": "application/json"} for each in seen.ends)


def test_a_text_body_is_sent_as_it_is(everywhere: Any) -> None:
    whole = one(verb="post", requestBody={"required": True, "content": {"text/csv": {}}})
    seen = everywhere(
        whole, [("post_v1_employees", {"body": "a,b\n"}), ("post_v1_employees", {"body": ["a"]})]
    )
    assert seen.ends[0]["calls"] == [
        call("POST", "/v1/employees", headers={"content-type": "text/csv"}, body="a,b\n")
    ]
    assert (seen.ends[1]["code"], seen.ends[1]["calls"]) == ("argument", [])


WRONG: list[dict[str, Any]] = [
    {},
    {"id": None},
    {"id": ""},
    {"id": "a/b"},
    {"id": ".."},
    {"id": "%2e"},
    {"id": "a\n"},
    {"id": "é"},
    {"id": "x" * 129},
    {"id": 7},
    {"id": True},
    {"id": ["a"]},
    {"id": "a", "other": 1},
    {"id": "a", "constructor": 1},
    {"id": "a", "__proto__": {"n": 1}},
    {"id": "a", "n": 1.5},
    {"id": "a", "n": "1"},
    {"id": "a", "n": True},
    {"id": "a", "x": "1"},
    {"id": "a", "b": 1},
    {"id": "a", "s": "\ud800"},
    {"id": "a", "many": "ab"},
    {"id": "a", "many": [1, 2]},
    {"id": "a", "body": {"\udfff": 1}},
    {"id": "a", "body": ["\ud800"]},
]


def test_a_wrong_argument_is_refused_with_the_same_words_and_sends_nothing(everywhere: Any) -> None:
    whole = one(
        "/things/{id}",
        "post",
        operationId="change",
        parameters=[
            parameter("id", "path"),
            parameter("n", kind="integer"),
            parameter("x", kind="number"),
            parameter("b", kind="boolean"),
            parameter("s"),
            {"name": "many", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
        ],
        requestBody={"content": {"application/json": {}}},
    )
    deep: Any = 0
    for _ in range(70):
        deep = [deep]
    seen = everywhere(whole, [("change", each) for each in [*WRONG, {"id": "a", "body": deep}]])
    assert [(each.get("code"), each["calls"]) for each in seen.ends] == [("argument", [])] * (len(WRONG) + 1)


def test_the_hosts_error_reaches_the_program_with_its_code(everywhere: Any) -> None:
    seen = everywhere(one("/fails", operationId="fails"), [("fails", {})])
    assert seen.ends[0]["code"] == "denied"


def test_texts_that_would_be_code_are_only_texts(everywhere: Any) -> None:
    """Each hostile text in every place where OpenAPI takes any text, and then the client is loaded and used."""
    paths: dict[str, Any] = {}
    for at, text in enumerate(HOSTILE):
        paths[f"/h{at}/{{{at}}}"] = {
            "summary": text,
            "post": {
                "operationId": text,
                "summary": text,
                "description": text,
                "tags": [text],
                "externalDocs": {"description": text, "url": text},
                "parameters": [
                    {
                        "name": str(at),
                        "in": "path",
                        "required": True,
                        "description": text,
                        "schema": {"enum": [text]},
                    },
                    {
                        "name": text or "empty",
                        "in": "query",
                        "description": text,
                        "schema": {"default": text},
                    },
                    {
                        "name": f"k{at}",
                        "in": "query",
                        "schema": {"type": "string", "pattern": text, "const": text},
                    },
                ],
                "requestBody": {
                    "description": text,
                    "content": {
                        "application/json": {
                            "schema": {"properties": {text: {"enum": [text]}}, "title": text}
                        }
                    },
                },
                "responses": {
                    "200": {"description": text, "content": {"application/json": {"schema": {"const": text}}}}
                },
                f"x-{text}": text,
            },
        }
    whole = document(
        paths, info={"title": "".join(HOSTILE), "version": HOSTILE[0]}, tags=[{"name": HOSTILE[1]}]
    )
    api = read(whole).api
    assert len(api.operations) == len(HOSTILE)
    inputs = [(each.name, {each.parameters[0].name: "v", "body": {}}) for each in api.operations]
    seen = everywhere(whole, inputs)
    assert {each["calls"][0]["path"] for each in seen.ends} == {f"/h{at}/v" for at in range(len(HOSTILE))}
    assert sorted(seen.functions) == sorted(each.name for each in api.operations)


def test_the_segments_that_a_client_sends_are_those_of_routes(everywhere: Any) -> None:
    whole = one("/{id}", operationId="get_it", parameters=[parameter("id", "path")])
    values = [chr(code) for code in range(1, 256)] + [".a", "a.", "...", "~", "-" * 128, "\u0660", "\uff41"]
    seen = everywhere(whole, [("get_it", {"id": each}) for each in values])
    taken = [value for value, end in zip(values, seen.ends, strict=True) if end["calls"]]
    assert taken == [value for value in values if SEGMENT.fullmatch(value)]
