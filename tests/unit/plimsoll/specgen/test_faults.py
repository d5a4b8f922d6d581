"""A document that breaks a rule or a bound is refused whole, with the JSON pointer and the rule, and in bounded time."""

import time
from typing import Any

import pytest

from plimsoll.specgen import SpecFault, read, write
from plimsoll.specgen.document import FINDINGS, OPERATIONS, PARAMETERS
from tests.support.openapi_documents import document, one, parameter

FAULTS: list[tuple[str, Any, str, str]] = [
    ("no object", [], "#", "must be an object"),
    ("no version", {}, "#", "must have openapi"),
    ("Swagger", {"swagger": "2.0"}, "#", "not Swagger 2.0"),
    ("OpenAPI 3.2", one() | {"openapi": "3.2.0"}, "#/openapi", "must be 3.0 or 3.1"),
    ("a version of a number", one() | {"openapi": 3.1}, "#/openapi", "must be a string"),
    ("no info", {"openapi": "3.0.0"}, "#", "must have info"),
    ("no title", one() | {"info": {}}, "#/info", "must have title"),
    ("paths of a list", one() | {"paths": []}, "#/paths", "must be an object"),
    ("no paths", document({}), "#/paths", "no operation can be expressed"),
    ("a path of null", document({"/a": None}), "#/paths/~1a", "must be an object"),
    ("an operation of a list", document({"/a~b": {"get": []}}), "#/paths/~1a~0b/get", "must be an object"),
    ("parameters of an object", one("/a", parameters={}), "#/paths/~1a/get/parameters", "must be an array"),
    (
        "a parameter of a text",
        one("/a", parameters=["x"]),
        "#/paths/~1a/get/parameters/0",
        "must be an object",
    ),
    (
        "a parameter nowhere",
        one("/a", parameters=[{"name": "a"}]),
        "#/paths/~1a/get/parameters/0",
        "must have in",
    ),
    (
        "a parameter in a body",
        one("/a", parameters=[{"name": "a", "in": "body"}]),
        "#/paths/~1a/get/parameters/0/in",
        "must be path, query, header or cookie",
    ),
    (
        "required of a text",
        one("/a", parameters=[parameter("a", required="yes")]),
        "#/paths/~1a/get/parameters/0/required",
        "must be true or false",
    ),
    (
        "a parameter twice",
        one("/a", parameters=[parameter("a"), parameter("a")]),
        "#/paths/~1a/get/parameters/1",
        "must not declare a parameter twice",
    ),
    (
        "a body without content",
        one("/a", "post", requestBody={}),
        "#/paths/~1a/post/requestBody",
        "must have content",
    ),
    (
        "a reference to nothing",
        one("/a", parameters=[{"$ref": "#/components/parameters/none"}]),
        "#/paths/~1a/get/parameters/0",
        "leads to nothing",
    ),
    ("a reference to itself", document({"/a": {"$ref": "#/paths/~1a"}}), "#/paths/~1a", "or in a circle"),
    (
        "a pair that refer to each other",
        document({"/a": {"$ref": "#/paths/~1b"}, "/b": {"$ref": "#/paths/~1a"}}),
        "#/paths/~1a",
        "or in a circle",
    ),
    ("a reference of a number", document({"/a": {"$ref": 1}}), "#/paths/~1a/$ref", "must be a string"),
    (
        "too many parameters",
        one("/a", parameters=[parameter(f"p{n}") for n in range(PARAMETERS + 1)]),
        "#/paths/~1a/get/parameters",
        f"at most {PARAMETERS} elements",
    ),
    (
        "too many operations",
        document({f"/{n}": {"get": {}} for n in range(OPERATIONS + 1)}),
        "#/paths",
        f"at most {OPERATIONS} operations",
    ),
    (
        "too many findings",
        document({f"/{n}": {"get": {f"y{k}": 0 for k in range(20)}} for n in range(FINDINGS // 20 + 1)}),
        "#/paths/",
        f"over {FINDINGS} findings",
    ),
]


@pytest.mark.parametrize(
    ("whole", "pointer", "rule"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS]
)
def test_a_fault_names_its_place_and_its_rule(whole: Any, pointer: str, rule: str) -> None:
    with pytest.raises(SpecFault) as caught:
        read(whole)
    assert caught.value.pointer.startswith(pointer)
    assert rule in caught.value.rule
    assert str(caught.value).isascii()


def test_a_pointer_of_a_strangers_name_stays_on_its_line() -> None:
    with pytest.raises(SpecFault) as caught:
        read(document({"/\x1b[2J\n\u202e" + "x" * 10_000: {"get": []}}))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def wide(schema: dict[str, Any], **components: Any) -> dict[str, Any]:
    answer = {"200": {"content": {"application/json": {"schema": schema}}}}
    operations = {f"/{n}": {"get": {"responses": answer}} for n in range(200)}
    return document(operations, components={"schemas": components})


def link(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


HUGE: list[tuple[str, dict[str, Any]]] = [
    ("a schema that holds itself", wide(link("a"), a={"properties": {"a": link("a"), "b": link("a")}})),
    (
        "schemas that double at each step",
        wide(
            link("s0"),
            **{f"s{n}": {"allOf": [link(f"s{n + 1}")] * 20} for n in range(30)},
            s30={"type": "string"},
        ),
    ),
    (
        "a schema with many properties",
        wide(link("a"), a={"properties": {f"p{n}": {} for n in range(100_000)}}),
    ),
    ("a schema of many others", wide(link("a"), a={"oneOf": [{"type": "string"}] * 100_000})),
    (
        "a schema with many values",
        wide(link("a"), a={"enum": ["x" * 100] * 100_000, "required": ["x"] * 100_000}),
    ),
    ("many types", wide({"type": ["string", "integer"] * 10_000})),
    (
        "long texts",
        document({"/a": {"get": {"summary": "x " * 2_000_000, "operationId": "A b" * 1_000_000}}}),
    ),
]


@pytest.mark.parametrize("whole", [row[1] for row in HUGE], ids=[row[0] for row in HUGE])
def test_what_a_document_costs_is_bounded(whole: dict[str, Any]) -> None:
    started = time.monotonic()
    made = write(read(whole).api, "hr")
    assert time.monotonic() - started < 10
    assert len(made.description) < 256_000


@pytest.mark.parametrize(("count", "name"), [(50, "preamble.js"), (100, "catalog.json")])
def test_texts_that_are_too_long_are_refused(count: int, name: str) -> None:
    parameters = [parameter(f"{'k' * 60}{n}") for n in range(32)]
    paths = {f"/{n}": {"get": {"parameters": parameters}} for n in range(count)}
    with pytest.raises(SpecFault, match=rf"{name} would be over \d+ bytes: choose operations with --only"):
        write(read(document(paths)).api, "hr")
