"""openapi.json is a valid document, and what it says of every operation is complete."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from app.http.middleware import PUBLIC_PATHS
from app.http.problems import TABLE
from plimsoll.contract.refusals import Code
from tests.support.service import ROOT

SPEC: dict[str, Any] = json.loads((ROOT / "openapi.json").read_text(encoding="utf-8"))
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, operations in SPEC["paths"].items()
    for method, operation in operations.items()
}
ANYWHERE = {
    Code.INVALID_HEADER,
    Code.METHOD_NOT_ALLOWED,
    Code.REQUEST_TIMEOUT,
    Code.BODY_TOO_LARGE,
    Code.UNSUPPORTED_MEDIA_TYPE,
    Code.CAPACITY,
    Code.HEADERS_TOO_LARGE,
    Code.INTERNAL,
    Code.UNAVAILABLE,
}
"""What the listener or the middleware may answer in front of any route."""


def resolved(value: dict[str, Any]) -> dict[str, Any]:
    """`value`, or what it refers to."""
    if "$ref" not in value:
        return value
    found: Any = SPEC
    for part in value["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return resolved(found)


def references(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from references(each)


def responses(operation: str) -> dict[int, dict[str, Any]]:
    return {int(status): resolved(each) for status, each in OPERATIONS[operation]["responses"].items()}


def test_it_is_valid_openapi() -> None:
    OpenAPIV31SpecValidator(SPEC).validate()


def test_every_reference_leads_somewhere() -> None:
    assert all(resolved(each) for each in references(SPEC))


def test_every_shared_part_is_used() -> None:
    used = {each["$ref"] for each in references(SPEC)}
    parts = SPEC["components"]
    known = {f"#/components/{section}/{name}" for section in parts for name in parts[section]}
    assert known - used == {"#/components/securitySchemes/bearer"}


def test_operation_ids_are_there_and_differ() -> None:
    ids = [each["operationId"] for each in OPERATIONS.values()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_summary_says_in_words_what_is_done(operation: str) -> None:
    verb, *words = OPERATIONS[operation]["summary"].split()
    assert verb in {"Run", "List", "Look", "Ask", "Read", "Say"}
    assert len(words) >= 2


@pytest.mark.parametrize("name", SPEC["components"]["schemas"])
def test_a_field_that_may_be_left_out_has_no_default(name: str) -> None:
    """Generators of clients for TypeScript make a field with one required."""
    fields = SPEC["components"]["schemas"][name].get("properties", {}).values()
    assert not [each for each in fields if "default" in each]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_answer_promises_the_request_id(operation: str) -> None:
    for each in responses(operation).values():
        header = resolved(each["headers"]["Plimsoll-Request-Id"])
        assert header["required"]
        assert header["schema"]["pattern"] == "^[0-9a-f]{32}$"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_request_id_may_be_sent(operation: str) -> None:
    names = {resolved(each)["name"] for each in OPERATIONS[operation]["parameters"]}
    assert "Plimsoll-Request-Id" in names


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_refusal_is_a_declared_problem(operation: str) -> None:
    needs_token = operation.partition(" ")[2] not in PUBLIC_PATHS
    expected = {TABLE[code].status for code in ANYWHERE} | ({401, 403} if needs_token else set())
    declared = responses(operation)
    assert expected <= set(declared)
    for status, each in declared.items():
        if status >= 400 and (operation, status) != ("GET /readyz", 503):
            assert set(each["content"]) == {"application/problem+json"}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_only_public_routes_do_without_a_token(operation: str) -> None:
    public = operation.partition(" ")[2] in PUBLIC_PATHS
    assert (OPERATIONS[operation].get("security", SPEC["security"]) == []) is public
    assert (401 in responses(operation)) is not public


def test_every_refusal_there_is_can_be_answered_somewhere() -> None:
    declared = {status for operation in OPERATIONS for status in responses(operation)}
    assert {row.status for row in TABLE.values()} <= declared


def test_a_run_declares_every_refusal() -> None:
    unknown_path = {TABLE[Code.NOT_FOUND].status}
    assert {row.status for row in TABLE.values()} - unknown_path <= set(responses("POST /v1/runs"))


def test_the_mark_is_declared_exactly_where_it_can_be() -> None:
    markable = {row.status for row in TABLE.values() if row.markable}
    for name, each in SPEC["components"]["responses"].items():
        assert ("Plimsoll-Not-Dispatched" in each["headers"]) is (
            int(name.removeprefix("Problem")) in markable
        )
