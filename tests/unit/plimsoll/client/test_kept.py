"""A run that was started earlier: every check of an ordinary run, and no mark but the one that is proven."""

import math
from datetime import timedelta
from typing import Any

import pytest

from plimsoll.client import errors
from plimsoll.client.core import Core, snippet
from plimsoll.client.kept import Patience, Started
from plimsoll.client.results import Run
from plimsoll.contract.refusals import Reason
from plimsoll.contract.requests import JavaScript, RunRequest
from plimsoll.contract.tiers import Tier
from tests.unit.plimsoll import honest
from tests.unit.plimsoll.client.exchanges import CODE, core, play, raises

ANSWER = honest.run_answer()
DONE = honest.view(ANSWER) | {"result": ANSWER["result"]}
PENDING = honest.pending(ANSWER)
NOTHING = PENDING | {"state": "not_dispatched", "settled": True, "not_dispatched": {"reason": "capacity"}}


def start(one: Core, **how: Any) -> Started[Run]:
    return play(one.start(snippet(CODE, **how)), PENDING, status=202)


def end(one: Core, run: Started[Run], view: dict[str, Any], **how: Any) -> Any:
    return play(one.final_run(run, 0), view, **how)


def refused(view: dict[str, Any], kind: type[errors.PlimsollError], **how: Any) -> errors.PlimsollError:
    one = core()
    run = start(one, **how)
    prepared = one.final_run(run, 0)
    with raises(prepared, kind) as caught:
        play(prepared, view)
    return caught[0]


def test_starting_and_the_end() -> None:
    one = core()
    prepared = one.start(snippet(CODE, floor="process"))
    assert dict(prepared.headers)["prefer"] == "respond-async"
    run = play(prepared, PENDING, status=202)
    assert (run.id, run.finished) == ("a" * 32, None)
    assert end(one, run, PENDING) is None
    request = RunRequest(CODE, Tier.PROCESS)
    answer = honest.run_answer(request)
    found = end(one, run, honest.view(answer) | {"result": answer["result"]})
    assert (found.text, found.isolation, found.recorded) == ("42\n", Tier.PROCESS, True)


def test_the_end_may_be_read_again_and_only_as_this_run() -> None:
    one = core()
    run = start(one)
    first, second = end(one, run, DONE), end(one, run, DONE)
    assert first.record == second.record
    plain = one.run(snippet(CODE))
    with raises(plain, errors.StaleAnswer):
        play(plain, ANSWER)


def test_paths() -> None:
    one = core()
    run = start(one)
    assert one.final_run(run, 0).path == f"/v1/runs/{run.id}"
    assert one.final_run(run, 30).path == f"/v1/runs/{run.id}?wait=30"
    assert (one.cancel(run.id).method, one.cancel(run.id).path) == ("POST", f"/v1/runs/{run.id}/cancel")
    assert one.cancel(run.id).body == b""


def test_a_stored_answer_ends_it_at_once() -> None:
    run = play(core().start(snippet(CODE, idempotency_key="k")), ANSWER)
    assert run.finished is not None
    assert run.finished.text == "42\n"


def test_a_start_that_is_no_start() -> None:
    for how, kind in (
        ({"request_id": "f" * 32}, errors.AnswerNotBound),
        ({"status": 204}, errors.MalformedResponse),
    ):
        prepared = core().start(snippet(CODE))
        with raises(prepared, kind):
            play(prepared, PENDING, **{"status": 202} | how)


def test_a_refused_start_is_marked() -> None:
    prepared = core().start(snippet(CODE))
    with raises(prepared, errors.Capacity) as caught:
        play(prepared, honest.problem("capacity", 429, "capacity"), status=429)
    assert caught[0].not_dispatched is Reason.CAPACITY


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"id": "b" * 32}, errors.AnswerNotBound),
        ({"record": None}, errors.NoRecord),
        ({"result": None}, errors.NoResult),
        ({"result": ANSWER["result"] | {"stdout": "43\n"}}, errors.RecordMismatch),
        ({"provider": "docker"}, errors.RecordMismatch),
        ({"instance": "wasm-vm:" + "2" * 32}, errors.RecordMismatch),
        ({"isolation": "vm"}, errors.RecordMismatch),
        ({"evidence_sha256": ""}, errors.MalformedResponse),
        ({"state": "done"}, errors.MalformedResponse),
        ({"state": "may_have_run"}, errors.MayHaveRun),
    ],
)
def test_an_end_that_does_not_hold(changed: dict[str, Any], kind: type[errors.PlimsollError]) -> None:
    assert refused(DONE | changed, kind).not_dispatched is None


def test_26_the_end_of_another_request() -> None:
    other = honest.run_answer(RunRequest(JavaScript("something else")))
    error = refused(honest.view(other) | {"result": other["result"]}, errors.RecordMismatch)
    assert isinstance(error, errors.RecordMismatch)
    assert error.fields == ("request_sha256",)


def test_33_the_end_behind_a_wall_below_the_floor() -> None:
    answer = honest.run_answer(RunRequest(CODE, Tier.KERNEL))
    refused(
        honest.view(answer) | {"result": answer["result"]}, errors.IsolationEvidenceMismatch, floor="kernel"
    )


def test_s8_the_run_lies_between_its_start_and_its_end() -> None:
    one = core()
    run = start(one)
    assert end(one, run, DONE, at=honest.NOW + 3_600_000).exit_code == 0
    old = honest.run_answer(now=honest.NOW - 60_000)
    refused(honest.view(old) | {"result": old["result"]}, errors.StaleAnswer)


def test_nothing_ran_is_the_one_mark() -> None:
    error = refused(NOTHING, errors.Capacity)
    assert isinstance(error, errors.Refusal)
    assert (error.not_dispatched, error.run_id) == (Reason.CAPACITY, "a" * 32)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_its_error(reason: Reason) -> None:
    one = core()
    run = start(one)
    with pytest.raises(errors.Refusal) as caught:
        end(one, run, NOTHING | {"not_dispatched": {"reason": reason.value}})
    assert caught.value.not_dispatched is reason


@pytest.mark.parametrize(
    "changed",
    [
        {"not_dispatched": None},
        {"not_dispatched": {"reason": "moon"}},
        {"id": "b" * 32},
        {"record": ANSWER["record"], "instance": ANSWER["instance"]},
        {"result": ANSWER["result"]},
    ],
)
def test_nothing_ran_is_not_believed_beside_a_contradiction(changed: dict[str, Any]) -> None:
    one = core()
    run = start(one)
    with pytest.raises(errors.PlimsollError) as caught:
        end(one, run, NOTHING | changed)
    assert caught.value.not_dispatched is None


@pytest.mark.parametrize("request_id", ["", "f" * 32])
def test_nothing_ran_is_not_believed_on_an_answer_to_another_request(request_id: str) -> None:
    one = core()
    prepared = one.final_run(start(one), 0)
    with raises(prepared, errors.AnswerNotBound) as caught:
        play(prepared, NOTHING, request_id=request_id)
    assert caught[0].not_dispatched is None


@pytest.mark.parametrize("state", ["starting", "may_have_run", "not_dispatched", "finished"])
def test_what_can_still_change_is_no_end(state: str) -> None:
    one = core()
    assert end(one, start(one), PENDING | {"state": state, "settled": False}) is None


@pytest.mark.parametrize(
    ("code", "status"), [("capacity", 429), ("not_found", 404), ("unauthenticated", 401)]
)
def test_a_refused_question_says_nothing_about_the_run(code: str, status: int) -> None:
    one = core()
    run = start(one)
    mark = [("plimsoll-not-dispatched", "request")]
    for prepared in (one.final_run(run, 0), one.look(run.id), one.cancel(run.id), one.settled(run.id, 0)):
        with pytest.raises(errors.Refusal) as caught:
            play(prepared, honest.problem(code, status, "request"), status=status, headers=mark)  # type: ignore[misc]
        assert caught.value.not_dispatched is None


@pytest.mark.parametrize(
    "outcome", ["cancelled", "already_finished", "not_dispatched", "may_have_run", "requested"]
)
def test_what_cancelling_came_to(outcome: str) -> None:
    answer = {"id": "a" * 32, "state": "finished", "outcome": outcome}
    assert play(core().cancel("a" * 32), answer) == outcome


@pytest.mark.parametrize(
    ("changed", "kind"),
    [({"id": "b" * 32}, errors.AnswerNotBound), ({"outcome": "maybe"}, errors.MalformedResponse)],
)
def test_a_cancel_that_was_not_understood(changed: dict[str, str], kind: type[errors.PlimsollError]) -> None:
    prepared = core().cancel("a" * 32)
    with raises(prepared, kind):
        play(prepared, {"id": "a" * 32, "state": "finished", "outcome": "cancelled"} | changed)


def test_a_run_without_its_handle() -> None:
    assert play(core().settled("a" * 32, 0), PENDING) is None
    found = play(core().settled("a" * 32, 0), DONE)
    assert found is not None
    assert found.result is not None
    without = play(core().settled("a" * 32, 0), honest.view(ANSWER))
    assert without is not None
    assert without.result is None


def test_patience() -> None:
    patience = Patience(100, 360, 1000)
    assert [patience.wait(now) for now in (1000, 1050.5, 1099.5, 1101)] == [60, 49, 0, 0]
    assert [patience.pause(now) for now in (1000, 1099.9, 1100, 1101)] == [
        0.2,
        pytest.approx(0.1),
        None,
        None,
    ]
    assert Patience(None, 10, 0).wait(0) == 5
    assert Patience(None, 10, 0).pause(9) == 0.2
    assert Patience(0, 10, 0).pause(0) is None
    assert Patience(10**400, 10, 0).wait(0) == 5


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan, True, "5", timedelta(seconds=5)])
def test_patience_is_a_duration_and_anything_else_says_nothing_about_the_run(seconds: Any) -> None:
    with pytest.raises(errors.InvalidRequest, match="timeout: must") as caught:
        Patience(seconds, 10, 0)
    assert caught.value.not_dispatched is None
