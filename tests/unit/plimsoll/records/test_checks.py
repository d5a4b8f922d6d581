"""An answer that says anything else than its record, or than what we sent, is named field by field."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import JavaScript, Kind, RunRequest, SoftwareRule
from plimsoll.contract.results import ScriptResult
from plimsoll.contract.tiers import Tier
from plimsoll.records import Stated, check_answer, make_record, seal_record, software_allowed

REQUEST = RunRequest(JavaScript("1"), Tier.PROCESS, 500, SoftwareRule("exact", ("soft",)))
RESULT = ScriptResult(Kind.JAVASCRIPT, stdout=b"out")
STATED = Stated("wasm", "process", "env", "soft", "wasm-vm:" + "1" * 32)
RECORD = make_record(REQUEST, RESULT, STATED, policy="", started_unix_ms=5, ended_unix_ms=9)


def test_an_honest_record_has_no_fault() -> None:
    assert check_answer(REQUEST, RESULT, RECORD, STATED) == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("request_sha256", "0" * 64),
        ("result_sha256", "0" * 64),
        ("provider", "docker"),
        ("isolation", "vm"),
        ("environment", "other"),
        ("software_identity", "other"),
        ("software_rule_id", ""),
        ("instance", "wasm-vm:other"),
        ("session", "a" * 64),
        ("sequence", 1),
        ("previous_sha256", "a" * 64),
        ("unanswered", "deadline_exceeded"),
    ],
)
def test_a_resealed_lie_is_named(field: str, value: Any) -> None:
    lie = seal_record(replace(RECORD, **{field: value}))
    assert field in check_answer(REQUEST, RESULT, lie, STATED)


@pytest.mark.parametrize(("field", "value"), [("policy", "p"), ("started_unix_ms", 6), ("ended_unix_ms", 6)])
def test_an_altered_field_breaks_the_seal(field: str, value: Any) -> None:
    altered = replace(RECORD, **{field: value})
    assert check_answer(REQUEST, RESULT, altered, STATED) == ("record_sha256",)


@pytest.mark.parametrize("version", [1, 2, 3, 5])
def test_another_version_is_the_only_fault_named(version: int) -> None:
    record = RunRecord(version=version)
    assert check_answer(REQUEST, RESULT, record, STATED) == ("version",)


def test_another_request_or_result_is_named() -> None:
    other = replace(REQUEST, timeout_ms=501)
    assert check_answer(other, RESULT, RECORD, STATED) == ("request_sha256",)
    assert check_answer(REQUEST, replace(RESULT, stdout=b"0ut"), RECORD, STATED) == ("result_sha256",)


def test_unknown_software_meets_no_rule() -> None:
    rule = SoftwareRule("approved", ("a", ""))
    assert software_allowed(None, "")
    assert software_allowed(rule, "a")
    assert not software_allowed(rule, "")
    assert not software_allowed(rule, "b")
