"""The table is complete, and a problem answer says exactly what was refused and what that proves."""

import json

import pytest

from app.http import problems
from plimsoll.contract import rest
from plimsoll.contract.refusals import Code, FieldFault, Reason, Refusal

REQUEST_ID = "0123456789abcdef" * 2
STATUSES = {
    Reason.REQUEST: {400, 404, 405, 408, 413, 415, 422, 431},
    Reason.PERMISSION: {401, 403},
    Reason.PROTOCOL: {501},
    Reason.UNSUPPORTED: {501},
    Reason.ISOLATION: {412},
    Reason.ENVIRONMENT: {412, 503},
    Reason.CAPACITY: {429},
}


def answer(refusal: Refusal) -> tuple[int, dict[str, str], rest.Problem]:
    status, headers, body = problems.problem_bytes(refusal, REQUEST_ID)
    found = {name.decode(): value.decode() for name, value in headers}
    assert len(found) == len(headers), "a header twice"
    return status, found, rest.Problem.model_validate_json(body)


@pytest.mark.parametrize("code", Code)
def test_every_code_has_a_status_and_reads_as_the_contract_says(code: Code) -> None:
    status, headers, problem = answer(Refusal(code, "It is so.", run_id="a" * 32))
    assert (problem.status, problem.code, problem.detail) == (status, code, "It is so.")
    assert problem.type == f"urn:plimsoll:problem:{code.value}"
    assert problem.title
    assert problem.request_id == headers["plimsoll-request-id"] == REQUEST_ID
    assert problem.not_dispatched is None
    assert "plimsoll-not-dispatched" not in headers
    assert headers["content-type"] == "application/problem+json"
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


def test_the_table_knows_no_code_that_is_not_one() -> None:
    assert set(problems.TABLE) == set(Code)


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("code", Code)
def test_a_mark_is_repeated_in_the_header_and_some_codes_never_carry_one(code: Code, reason: Reason) -> None:
    _, headers, problem = answer(Refusal(code, "It is so.", reason))
    never = code in {Code.INTERNAL, Code.MAY_HAVE_RUN}
    mark = problem.not_dispatched.reason if problem.not_dispatched else None
    assert mark == (None if never else reason)
    assert headers.get("plimsoll-not-dispatched") == (None if never else reason.value)


def test_the_statuses_of_reasons_are_those_of_the_design() -> None:
    of_reason = {
        Reason.REQUEST: [
            Code.INVALID_REQUEST,
            Code.MALFORMED_JSON,
            Code.INVALID_HEADER,
            Code.HOST_NOT_ALLOWED,
            Code.NOT_FOUND,
            Code.METHOD_NOT_ALLOWED,
            Code.BODY_TOO_LARGE,
            Code.HEADERS_TOO_LARGE,
            Code.REQUEST_TIMEOUT,
            Code.UNSUPPORTED_MEDIA_TYPE,
        ],
        Reason.PERMISSION: [Code.UNAUTHENTICATED, Code.PERMISSION_DENIED, Code.CROSS_ORIGIN],
        Reason.PROTOCOL: [Code.PROTOCOL_MISMATCH],
        Reason.UNSUPPORTED: [Code.UNSUPPORTED, Code.EXECUTION_DISABLED],
        Reason.ISOLATION: [Code.ISOLATION_UNMET],
        Reason.ENVIRONMENT: [Code.SOFTWARE_UNMET, Code.UNAVAILABLE, Code.DRAINING],
        Reason.CAPACITY: [Code.RATE_LIMITED, Code.CAPACITY, Code.STORAGE_LIMIT],
    }
    for reason, codes in of_reason.items():
        assert {problems.status_of(code) for code in codes} <= STATUSES[reason]


def test_faults_are_listed() -> None:
    faults = (FieldFault("a", "is so"), FieldFault("b.0", "is not"))
    _, _, problem = answer(Refusal(Code.INVALID_REQUEST, "a: is so", Reason.REQUEST, faults))
    assert [(fault.field, fault.rule) for fault in problem.errors] == [("a", "is so"), ("b.0", "is not")]


def test_capacity_always_says_when_to_come_back() -> None:
    assert answer(Refusal(Code.CAPACITY, "Full.", Reason.CAPACITY))[1]["retry-after"] == "1"
    assert (
        answer(Refusal(Code.RATE_LIMITED, "Slow.", Reason.CAPACITY, retry_after_s=7))[1]["retry-after"] == "7"
    )
    assert (
        answer(Refusal(Code.RATE_LIMITED, "Slow.", Reason.CAPACITY, retry_after_s=0))[1]["retry-after"] == "1"
    )
    assert "retry-after" not in answer(Refusal(Code.NOT_FOUND, "No."))[1]


def test_may_have_run_names_the_run_and_where_to_ask() -> None:
    _, headers, problem = answer(Refusal(Code.MAY_HAVE_RUN, "Lost.", run_id="a" * 32))
    assert problem.run_id == "a" * 32
    assert headers["location"] == f"/v1/runs/{'a' * 32}"


def test_only_401_asks_for_a_token() -> None:
    asking = [code for code in Code if "www-authenticate" in answer(Refusal(code, "No."))[1]]
    assert asking == [Code.UNAUTHENTICATED]


def test_a_refusal_adds_headers_of_its_own() -> None:
    refusal = Refusal(Code.METHOD_NOT_ALLOWED, "No.", headers=(("Allow", "GET"),))
    assert answer(refusal)[1]["allow"] == "GET"


def test_a_body_is_ascii_whatever_a_field_is_called() -> None:
    refusal = Refusal(Code.INVALID_REQUEST, "é\u202e", Reason.REQUEST, (FieldFault("\ud800", "\x1b"),))
    body = problems.problem_bytes(refusal, REQUEST_ID)[2]
    assert body.isascii()
    assert b"\x1b" not in body
    assert json.loads(body)["errors"][0]["field"] == "\ud800"
