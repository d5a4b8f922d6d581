"""Checks 24 to 33 and S8, each by what it refuses. None is marked, and from 25 on the result comes along."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.client import errors
from plimsoll.client.core import snippet
from plimsoll.client.results import Run
from plimsoll.contract.advice import Advice
from plimsoll.contract.requests import JavaScript, Python, RunRequest, SoftwareRule
from plimsoll.contract.tiers import Tier
from tests.unit.plimsoll import honest
from tests.unit.plimsoll.client.exchanges import CODE, core, play, raises


def test_an_honest_answer_is_the_run_it_states() -> None:
    run = play(core().run(snippet(CODE, floor="process")), honest.run_answer(RunRequest(CODE, Tier.PROCESS)))
    assert (run.text, run.exit_code, run.ok, run.isolation) == ("42\n", 0, True, Tier.PROCESS)
    assert run.record_sha256 == run.record.record_sha256 != ""
    assert run.request_id == f"{1:032x}"
    assert "42" not in repr(run)


def test_bytes_that_are_not_utf8_come_back_exactly() -> None:
    answer = honest.run_answer(stdout=b"\xff\x00")
    run = play(core().run(snippet(CODE)), answer)
    assert run.stdout == b"\xff\x00"
    assert run.text == "\N{REPLACEMENT CHARACTER}\0"


def test_a_failing_program_is_a_result() -> None:
    run = play(core().run(snippet(CODE)), honest.run_answer(exit_code=3))
    assert (run.exit_code, run.ok) == (3, False)


def test_fields_we_do_not_know_are_ignored() -> None:
    assert play(core().run(snippet(CODE)), honest.run_answer() | {"later": {"a": 1}}).exit_code == 0


FOUND: dict[str, Any] = {
    "code": "later_than_us",
    "route": "GET /v1/x/*",
    "count": 12,
    "at_least": False,
    "sentence": "12 calls.",
    "suggested_route": "",
    "ms": 3,
    "bytes_back": 4,
}


def test_advice_comes_along_whatever_its_code_and_changes_nothing_else() -> None:
    answers: list[dict[str, Any]] = [{}, {"advice": [FOUND | {"more": 1}]}, {"advice": []}]
    plain, advised, told_nothing = (
        play(core().run(snippet(CODE)), honest.run_answer() | more) for more in answers
    )
    assert advised.advice == (Advice(**FOUND),)
    assert plain == told_nothing == replace(advised, advice=())


@pytest.mark.parametrize("wrong", ["text", [{}], [FOUND | {"count": "12"}], [FOUND | {"sentence": None}]])
def test_advice_of_another_shape_is_malformed(wrong: object) -> None:
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.MalformedResponse):
        play(prepared, honest.run_answer() | {"advice": wrong})


@pytest.mark.parametrize("missing", [{"record": None}, {}], ids=["null", "absent"])
def test_24_no_record(missing: dict[str, Any]) -> None:
    answer = {name: value for name, value in honest.run_answer().items() if name != "record"} | missing
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.NoRecord) as caught:
        play(prepared, answer)
    assert caught[0].result is not None
    assert isinstance(caught[0].result, Run)
    assert (caught[0].result.stdout, caught[0].result.record.version) == (b"42\n", 0)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_25_another_record_version(version: int) -> None:
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.RecordVersion) as caught:
        play(prepared, honest.resealed(honest.run_answer(), version=version))
    assert caught[0].version == version
    assert caught[0].result is not None


def test_26_a_record_of_another_request() -> None:
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.RecordMismatch) as caught:
        play(prepared, honest.run_answer(RunRequest(JavaScript("something else"))))
    assert caught[0].fields == ("request_sha256",)
    assert caught[0].not_dispatched is None
    assert caught[0].result is not None


def test_26_what_was_sent_counts_not_what_is_a_default() -> None:
    sent = honest.run_answer(RunRequest(CODE, Tier.PROCESS, 30_000))
    assert play(core().run(snippet(CODE, floor="process", timeout=30)), sent).exit_code == 0
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.RecordMismatch):
        play(prepared, sent)


def test_27_altered_output() -> None:
    answer = honest.run_answer()
    answer["result"]["stdout"] = "43\n"
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.RecordMismatch) as caught:
        play(prepared, answer)
    assert caught[0].fields == ("result_sha256",)
    assert "43" not in str(caught[0])


@pytest.mark.parametrize("field", ["provider", "environment", "software_identity", "instance", "isolation"])
def test_28_the_answer_says_something_else_than_its_record(field: str) -> None:
    answer = honest.run_answer() | {field: "vm" if field == "isolation" else "other:thing"}
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.RecordMismatch) as caught:
        play(prepared, answer)
    assert caught[0].fields == (field,)


def test_29_the_rule_and_the_software() -> None:
    rule = SoftwareRule("approved", ("soft:1", "soft:2"))
    answer = honest.run_answer(RunRequest(CODE, software_rule=rule))
    assert play(core().run(snippet(CODE, software_rule=rule)), answer).software_identity == "soft:1"
    for lie, field in (
        ({"software_rule_id": ""}, "software_rule_id"),
        ({"software_identity": "soft:3"}, "software_identity"),
        ({"software_identity": ""}, "software_identity"),
    ):
        changed = honest.resealed(answer, **lie) | {
            name: value for name, value in lie.items() if name in answer
        }
        prepared = core().run(snippet(CODE, software_rule=rule))
        with raises(prepared, errors.RecordMismatch) as caught:
            play(prepared, changed)
        assert caught[0].fields == (field,)


def test_30_a_record_that_was_touched() -> None:
    answer = honest.run_answer()
    answer["record"]["policy"] = "none at all"
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.RecordMismatch) as caught:
        play(prepared, answer)
    assert caught[0].fields == ("record_sha256",)


@pytest.mark.parametrize(
    ("field", "value"), [("session", "5" * 64), ("sequence", 1), ("previous_sha256", "5" * 64)]
)
def test_31_a_single_run_is_in_no_session(field: str, value: Any) -> None:
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.RecordMismatch) as caught:
        play(prepared, honest.resealed(honest.run_answer(), **{field: value}))
    assert caught[0].fields == (field,)


@pytest.mark.parametrize("kind", ["python", "project", "something"])
def test_32_a_result_of_another_kind(kind: str) -> None:
    answer = honest.run_answer()
    answer["result"]["kind"] = kind
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.ResultKindMismatch):
        play(prepared, answer)


def test_32_python_is_answered_by_python() -> None:
    python = Python("print(42)")
    assert play(core().run(snippet(python)), honest.run_answer(RunRequest(python))).kind == "python"


def test_32_a_missing_result_is_malformed() -> None:
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.MalformedResponse):
        play(prepared, honest.run_answer() | {"result": None})


@pytest.mark.parametrize("tier", ["process", "container", "none", "fortress"])
def test_33_a_wall_below_the_floor_or_unknown(tier: str) -> None:
    answer = honest.run_answer(RunRequest(CODE, Tier.KERNEL), tier=tier)
    prepared = core().run(snippet(CODE, floor="kernel"))
    with raises(prepared, errors.IsolationEvidenceMismatch) as caught:
        play(prepared, answer)
    assert caught[0].result is not None


@pytest.mark.parametrize("tier", ["kernel", "vm"])
def test_33_a_stronger_wall_is_fine(tier: str) -> None:
    answer = honest.run_answer(RunRequest(CODE, Tier.KERNEL), tier=tier)
    assert play(core().run(snippet(CODE, floor="kernel")), answer).isolation == tier


@pytest.mark.parametrize(
    ("started", "ended"), [(-5_001, 0), (0, 5_006), (-60_000, -59_000), (60_000, 60_001)]
)
def test_s8_times_outside_our_own(started: int, ended: int) -> None:
    times = {"started_unix_ms": honest.NOW + started, "ended_unix_ms": honest.NOW + ended}
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.StaleAnswer) as caught:
        play(prepared, honest.resealed(honest.run_answer(), **times))
    assert caught[0].result is not None


def test_s8_the_skew_can_be_set() -> None:
    times = {"started_unix_ms": honest.NOW - 20_000, "ended_unix_ms": honest.NOW - 20_000}
    late = honest.resealed(honest.run_answer(), **times)
    assert play(core(clock_skew=20).run(snippet(CODE)), late).exit_code == 0
    prepared = core(clock_skew=0).run(snippet(CODE))
    with raises(prepared, errors.StaleAnswer):
        play(prepared, honest.resealed(honest.run_answer(), started_unix_ms=honest.NOW - 1))


def test_s8_an_instance_is_believed_once() -> None:
    one = core()
    assert play(one.run(snippet(CODE)), honest.run_answer()).exit_code == 0
    again = one.run(snippet(CODE))
    with raises(again, errors.StaleAnswer) as caught:
        play(again, honest.run_answer())
    assert caught[0].result is not None
    assert play(one.run(snippet(CODE)), honest.run_answer(instance="wasm-vm:" + "2" * 32)).exit_code == 0


def test_s8_an_answer_that_failed_a_check_spends_no_instance() -> None:
    one = core()
    bad = one.run(snippet(CODE, floor="kernel"))
    with raises(bad, errors.RecordMismatch):
        play(bad, honest.run_answer())
    assert play(one.run(snippet(CODE)), honest.run_answer()).exit_code == 0


def test_s8_an_answer_must_name_its_sandbox() -> None:
    prepared = core().run(snippet(CODE))
    with raises(prepared, errors.StaleAnswer):
        play(prepared, honest.run_answer(instance=""))
