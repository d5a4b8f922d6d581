"""Idempotency keys: what is sent, which old answers are fine, and what is pending or in conflict."""

from typing import Any

import pytest

from plimsoll.client import errors
from plimsoll.client.core import snippet
from plimsoll.client.verify import KEPT_MS
from plimsoll.contract.refusals import Reason
from plimsoll.contract.requests import JavaScript, RunRequest
from tests.unit.plimsoll import honest
from tests.unit.plimsoll.client.exchanges import CODE, core, play, raises

ANSWER = honest.run_answer()


def started(ago: int) -> dict[str, Any]:
    """An answer whose run started that many milliseconds before it was asked for."""
    return honest.run_answer(now=honest.NOW - ago)


def test_the_key_is_a_header_and_in_no_digest_and_no_repr() -> None:
    prepared = core().run(snippet(CODE, idempotency_key="hunter2"))
    assert dict(prepared.headers)["idempotency-key"] == "hunter2"
    assert prepared.body == core().run(snippet(CODE)).body
    assert "hunter2" not in repr(prepared)
    assert play(prepared, ANSWER).exit_code == 0
    assert "idempotency-key" not in dict(core().run(snippet(CODE, idempotency_key=None)).headers)


@pytest.mark.parametrize("key", ["", " ", "a b", "\u00e9", "a\n", "\x7f", "x" * 256, 7, b"k"])
def test_8_a_key_is_1_to_255_visible_ascii(key: Any) -> None:
    one = core()
    with pytest.raises(errors.InvalidRequest) as caught:
        snippet(CODE, idempotency_key=key)
    assert [fault.field for fault in caught.value.faults] == ["idempotency_key"]
    assert caught.value.not_dispatched is Reason.REQUEST
    assert one.run(snippet(CODE, idempotency_key="~" * 255)).headers


def test_s8_under_a_key_an_answer_may_be_a_day_old() -> None:
    assert play(core().run(snippet(CODE, idempotency_key="k")), started(KEPT_MS)).exit_code == 0
    for key, ago in (("k", KEPT_MS + 6_000), (None, 6_000), (None, KEPT_MS), ("k", -6_000)):
        prepared = core().run(snippet(CODE, idempotency_key=key))
        with raises(prepared, errors.StaleAnswer) as caught:
            play(prepared, started(ago) if ago > 0 else started(-11_000))
        assert caught[0].not_dispatched is None


def test_s8_a_sandbox_may_come_again_under_its_own_key_only() -> None:
    one = core()
    for _ in range(3):
        assert play(one.run(snippet(CODE, idempotency_key="k")), ANSWER).exit_code == 0
    for key in ("l", None):
        prepared = one.run(snippet(CODE, idempotency_key=key))
        with raises(prepared, errors.StaleAnswer):
            play(prepared, ANSWER)


def test_s8_what_was_seen_without_a_key_is_no_keys_answer() -> None:
    one = core()
    assert play(one.run(snippet(CODE)), ANSWER).exit_code == 0
    prepared = one.run(snippet(CODE, idempotency_key="k"))
    with raises(prepared, errors.StaleAnswer):
        play(prepared, ANSWER)


def test_a_keys_answer_to_another_request_is_refused() -> None:
    prepared = core().run(snippet(CODE, idempotency_key="k"))
    with raises(prepared, errors.RecordMismatch):
        play(prepared, honest.run_answer(RunRequest(JavaScript("something else"))))


def test_a_run_that_goes_on_is_pending_under_a_key_and_malformed_without() -> None:
    keyed = core().run(snippet(CODE, idempotency_key="k"))
    with raises(keyed, errors.RunPending) as caught:
        play(keyed, honest.pending(ANSWER), status=202)
    assert (caught[0].run_id, caught[0].not_dispatched) == ("a" * 32, None)
    plain = core().run(snippet(CODE))
    with raises(plain, errors.MalformedResponse):
        play(plain, honest.pending(ANSWER), status=202)


@pytest.mark.parametrize("request_id", ["", "f" * 32])
def test_21_a_pending_run_of_somebody_else(request_id: str) -> None:
    keyed = core().run(snippet(CODE, idempotency_key="k"))
    with raises(keyed, errors.AnswerNotBound):
        play(keyed, honest.pending(ANSWER), status=202, request_id=request_id)


def test_a_pending_answer_that_names_no_run() -> None:
    keyed = core().run(snippet(CODE, idempotency_key="k"))
    with raises(keyed, errors.MalformedResponse):
        play(keyed, honest.pending(ANSWER) | {"id": "../x"}, status=202)


def test_a_run_that_holds_the_key_may_have_run() -> None:
    keyed = core().run(snippet(CODE, idempotency_key="k"))
    with raises(keyed, errors.MayHaveRun) as caught:
        play(keyed, honest.problem("may_have_run", 502, "capacity", run_id="b" * 32), status=502)
    assert (caught[0].run_id, caught[0].not_dispatched) == ("b" * 32, None)


def test_another_request_under_the_key_is_a_marked_conflict() -> None:
    keyed = core().run(snippet(CODE, idempotency_key="k"))
    with raises(keyed, errors.KeyConflict) as caught:
        play(keyed, honest.problem("key_conflict", 409, "request"), status=409)
    assert caught[0].not_dispatched is Reason.REQUEST
    assert isinstance(caught[0], errors.InvalidRequest)
