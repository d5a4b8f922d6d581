"""Checks 18 to 22: the head, the bytes, the id, and what an error answer proves."""

from typing import Any

import pytest

from plimsoll.client import errors
from plimsoll.client.answers import BODY_LIMIT
from plimsoll.client.core import snippet
from plimsoll.client.refusals import CLASSES
from plimsoll.contract.refusals import Code, Reason
from tests.unit.plimsoll import honest
from tests.unit.plimsoll.client.exchanges import CODE, core, play, raises


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308, 399])
def test_18_a_redirect_is_an_error_without_a_mark(status: int) -> None:
    prepared = core().run(snippet(CODE))
    headers = [("location", "http://elsewhere/"), ("plimsoll-not-dispatched", "request")]
    with raises(prepared, errors.RedirectRefused) as caught:
        play(prepared, {}, status=status, headers=headers)
    assert caught[0].not_dispatched is None


@pytest.mark.parametrize("status", [100, 201, 202, 204, 206, 600])
def test_a_success_of_another_sort_is_no_answer(status: int) -> None:
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.MalformedResponse):
        play(prepared, honest.run_answer(), status=status)


def test_19_too_large_by_header_and_by_count() -> None:
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.ResponseTooLarge):
        play(prepared, honest.run_answer(), headers=[("content-length", str(BODY_LIMIT + 1))])
    with raises(prepared, errors.ResponseTooLarge):
        play(prepared, b" " * (BODY_LIMIT + 1))


ANSWER = honest.dumped(honest.run_answer())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'"text"',
        ANSWER[:-1],
        ANSWER + b" x",
        ANSWER.replace(b'"duration_ms": 3', b'"duration_ms": 3, "duration_ms": 4'),
        ANSWER.replace(b'"exit_code": 0', b'"exit_code": 1, "exit_code": 0'),
        ANSWER.replace(b'"duration_ms": 3', b'"duration_ms": NaN'),
        ANSWER.replace(b'"duration_ms": 3', b'"duration_ms": "3"'),
        ANSWER.replace(b'"duration_ms": 3', b'"duration_ms": 3.5'),
        ANSWER.replace(b'"timed_out": false', b'"timed_out": 0'),
        ANSWER.replace(b'"42\\n"', b'"\\ud800"'),
        ANSWER.replace(b'"42\\n"', b"null"),
        ANSWER.replace(b'"42\\n"', b'"\xff"'),
        ANSWER.replace(b'"utf-8"', b'"latin-1"'),
        ANSWER.replace(b'"stdout_encoding": "utf-8"', b'"stdout_encoding": "base64"'),
        ANSWER[:-1] + b', "deep": ' + b"[" * 40 + b"]" * 40 + b"}",
        ANSWER[:-1] + b', "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        ANSWER.replace(b'"' + b"a" * 32 + b'"', b'"../../x"'),
    ],
)
def test_20_a_body_that_is_not_exactly_an_answer(body: bytes) -> None:
    assert body != ANSWER
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.MalformedResponse) as caught:
        play(prepared, body)
    assert caught[0].not_dispatched is None
    assert "42" not in str(caught[0])


@pytest.mark.parametrize(
    "content_type", ["text/html", "", "application/json5", "application/json; charset=latin-1"]
)
def test_20_another_content_type(content_type: str) -> None:
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.MalformedResponse):
        play(prepared, honest.run_answer(), content_type=content_type)


def test_20_an_encoded_answer() -> None:
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.MalformedResponse):
        play(prepared, honest.run_answer(), headers=[("content-encoding", "gzip")])


@pytest.mark.parametrize("request_id", ["", "f" * 32, "0" * 31 + "1 ", f"{1:032x}, {1:032x}"])
def test_21_an_answer_to_another_request_is_nobodys_result(request_id: str) -> None:
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.AnswerNotBound) as caught:
        play(prepared, honest.run_answer(), request_id=request_id)
    assert caught[0].result is None


def test_21_the_id_must_be_there_once() -> None:
    prepared = core().run(snippet(CODE))
    twice = [("plimsoll-request-id", prepared.request_id)]
    with raises(prepared, errors.AnswerNotBound):
        play(prepared, honest.run_answer(), headers=twice)


def refused(body: object, *, status: int = 412, **how: Any) -> errors.Refusal:
    prepared = core().run(snippet(CODE))
    with pytest.raises(errors.Refusal) as info:
        play(prepared, body, status=status, content_type="application/problem+json", **how)
    assert info.value.request_id == prepared.request_id
    return info.value


def test_21_a_mark_counts_only_with_our_own_id() -> None:
    body = honest.problem("isolation_unmet", 412, "isolation")
    mark = [("plimsoll-not-dispatched", "isolation")]
    own = refused(body, headers=mark)
    assert (type(own), own.not_dispatched) == (errors.InsufficientIsolation, Reason.ISOLATION)
    for request_id in ("", "f" * 32):
        other = refused(body, headers=mark, request_id=request_id)
        assert (type(other), other.not_dispatched, other.code) == (
            errors.InsufficientIsolation,
            None,
            "isolation_unmet",
        )


@pytest.mark.parametrize("code", list(Code))
def test_22_every_code_has_a_class(code: Code) -> None:
    error = refused(honest.problem(code.value, 400, None), status=400)
    assert type(error) is CLASSES[code]
    assert (error.code, error.status, str(error), error.not_dispatched) == (code.value, 400, "No.", None)


@pytest.mark.parametrize("reason", list(Reason))
def test_22_every_reason_is_read_from_the_body_and_from_the_header(reason: Reason) -> None:
    assert refused(honest.problem("capacity", 429, reason)).not_dispatched is reason
    header = [("plimsoll-not-dispatched", reason.value)]
    assert refused(honest.problem("capacity", 429, None), headers=header).not_dispatched is reason
    assert refused(b"<html>", headers=header).not_dispatched is reason


def test_22_a_reason_we_have_no_word_for_is_still_a_mark() -> None:
    assert refused(honest.problem("moon_phase", 400, "moon")).not_dispatched == "unknown"


@pytest.mark.parametrize("detail", [None, {}, "isolation", {"reason": 1}, {"reason": ""}, {"reason": "A B"}])
def test_22_a_detail_that_cannot_be_read_states_nothing(detail: object) -> None:
    body = honest.problem("isolation_unmet", 412, None) | {"not_dispatched": detail}
    assert refused(body, headers=[("plimsoll-not-dispatched", "isolation")]).not_dispatched is None


@pytest.mark.parametrize(("code", "status"), [("internal", 500), ("may_have_run", 502), ("unavailable", 500)])
def test_22_a_contradiction_proves_nothing(code: str, status: int) -> None:
    body = honest.problem(code, status, "environment")
    header = [("plimsoll-not-dispatched", "environment")]
    assert refused(body, status=status, headers=header).not_dispatched is None


def test_22_a_proxys_error_page_is_a_service_error() -> None:
    error = refused(b"<html>no</html>", status=502)
    assert (type(error), error.status, error.not_dispatched) == (errors.ServiceError, 502, None)


def test_22_may_have_run_names_the_run() -> None:
    error = refused(honest.problem("may_have_run", 502, None, run_id="b" * 32), status=502)
    assert (type(error), error.run_id) == (errors.MayHaveRun, "b" * 32)


def test_22_capacity_says_when() -> None:
    body = honest.problem("capacity", 429, "capacity")
    assert refused(body, status=429, headers=[("retry-after", "7")]).retry_after == 7
    assert refused(body, status=429, headers=[("retry-after", "soon")]).retry_after is None


def test_22_broken_rules_are_named() -> None:
    body = honest.problem("invalid_request", 422, "request", errors=[{"field": "a.b", "rule": "must"}, 7])
    (fault,) = refused(body, status=422).faults
    assert (fault.field, fault.rule) == ("a.b", "must")
