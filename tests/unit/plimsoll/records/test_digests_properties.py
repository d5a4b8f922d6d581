"""Properties that make a digest a statement about one value and no other."""

import json
import struct
from dataclasses import fields, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import (
    Cell,
    File,
    JavaScript,
    Kind,
    Module,
    Project,
    Python,
    RunRequest,
    SoftwareRule,
)
from plimsoll.contract.rest import RunBody
from plimsoll.contract.results import ModuleResult, ModuleRow, ScriptResult
from plimsoll.contract.tiers import FLOORS
from plimsoll.records import (
    record_digest,
    request_digest,
    result_digest,
    seal_record,
    session_fingerprint,
    software_rule_id,
)
from plimsoll.records.rest import request_from_body

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CODE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)
RULES = st.builds(
    lambda identities: SoftwareRule("exact" if len(identities) == 1 else "approved", tuple(identities)),
    st.lists(st.from_regex(r"\A[a-z0-9:@/]{1,8}\Z"), min_size=1, max_size=4, unique=True),
)
REQUESTS = st.builds(
    RunRequest,
    payload=st.one_of(st.builds(JavaScript, CODE, TEXT), st.builds(Python, CODE, TEXT)),
    minimum_isolation=st.none() | st.sampled_from(FLOORS),
    timeout_ms=st.integers(0, 300_000),
    software_rule=st.none() | RULES,
)


@given(REQUESTS, REQUESTS)
def test_two_requests_share_a_digest_only_if_they_are_equal(one: RunRequest, other: RunRequest) -> None:
    assert (request_digest(one) == request_digest(other)) == (one == other)


@given(REQUESTS, TEXT)
def test_the_trace_id_is_in_no_digest(request: RunRequest, trace_id: str) -> None:
    assert request_digest(replace(request, trace_id=trace_id)) == request_digest(request)


@given(REQUESTS)
def test_python_and_javascript_of_the_same_text_differ(request: RunRequest) -> None:
    assert isinstance(request.payload, JavaScript | Python)
    code, profile = request.payload.code, request.payload.grant_profile
    pair = (JavaScript(code, profile), Python(code, profile))
    assert len({request_digest(replace(request, payload=payload)) for payload in pair}) == 2


@given(st.text("ab/", min_size=1, max_size=6), st.data())
def test_a_moved_boundary_changes_the_digest(joined: str, data: st.DataObject) -> None:
    cuts = st.integers(0, len(joined))
    one, other = data.draw(cuts), data.draw(cuts)

    def digest(cut: int) -> str:
        file = File(joined[:cut], joined[cut:].encode())
        return request_digest(RunRequest(Project(files=(file,), steps=("true",))))

    assert (digest(one) == digest(other)) == (one == other)


@given(st.lists(TEXT, max_size=4), st.data())
def test_an_item_moved_from_one_list_to_the_next_changes_the_digest(
    items: list[str], data: st.DataObject
) -> None:
    cuts = st.integers(0, len(items))
    one, other = data.draw(cuts), data.draw(cuts)

    def digest(cut: int) -> str:
        return request_digest(RunRequest(Project(steps=tuple(items[:cut]), artifacts=tuple(items[cut:]))))

    assert (digest(one) == digest(other)) == (one == other)


@given(st.binary(max_size=20), st.integers(0, 20))
def test_output_moved_between_streams_changes_the_digest(output: bytes, cut: int) -> None:
    whole = ScriptResult(Kind.JAVASCRIPT, stdout=output)
    moved = ScriptResult(Kind.JAVASCRIPT, stdout=output[:cut], stderr=output[cut:])
    assert (result_digest(whole) == result_digest(moved)) == (whole == moved)


def shuffled(value: Any, data: st.DataObject) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: shuffled(value[key], data) for key in data.draw(st.permutations(list(value)))}


BODIES = st.fixed_dictionaries(
    {
        "payload": st.fixed_dictionaries(
            {"kind": st.sampled_from(["javascript", "python"]), "code": CODE},
            optional={"grant_profile": st.none() | st.just("hr-read")},
        )
    },
    optional={
        "minimum_isolation": st.sampled_from([floor.value for floor in FLOORS]),
        "timeout_ms": st.integers(1, 300_000),
        "trace_id": st.none() | st.just("t-1"),
    },
)


@given(BODIES, st.data())
def test_the_order_of_keys_in_json_does_not_matter(body: dict[str, Any], data: st.DataObject) -> None:
    other = json.loads(json.dumps(shuffled(body, data)))
    digests = {request_digest(request_from_body(RunBody.model_validate(form))) for form in (body, other)}
    assert len(digests) == 1


@given(st.integers(0, 2**52 - 1).filter(bool), st.booleans())
def test_every_nan_is_one_nan(payload: int, negative: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
    bits = (negative << 63) | (0x7FF << 52) | payload
    (nan,) = struct.unpack(">d", bits.to_bytes(8, "big"))
    one, other = (ModuleResult(runs=(ModuleRow(0, (value,)),)) for value in (nan, float("nan")))
    assert result_digest(one) == result_digest(other)


def test_the_sign_of_zero_is_kept() -> None:
    one, other = (request_digest(RunRequest(Module("m", ((zero,),)))) for zero in (0.0, -0.0))
    assert one != other


def test_protocol_1_has_its_own_domain_and_no_software_rule() -> None:
    rule = SoftwareRule("exact", ("a",))
    old, old_ruled = (RunRequest(JavaScript("1"), software_rule=r, protocol=1) for r in (None, rule))
    assert request_digest(old) == request_digest(old_ruled)
    assert request_digest(old) != request_digest(replace(old, protocol=2))


def test_a_cell_is_not_a_snippet() -> None:
    cell, snippet = RunRequest(Cell("javascript", "1")), RunRequest(JavaScript("1"))
    assert request_digest(cell) != request_digest(snippet)


RECORD = seal_record(RunRecord(request_sha256="a" * 64, result_sha256="b" * 64, provider="wasm"))
NUMBERS = {"started_unix_ms", "ended_unix_ms", "sequence"}


@given(st.sampled_from([f.name for f in fields(RunRecord) if f.name not in {"version", "record_sha256"}]))
def test_every_field_of_a_record_is_covered_in_version_4(name: str) -> None:
    change: dict[str, Any] = {name: 7 if name in NUMBERS else "other"}
    assert record_digest(replace(RECORD, **change)) != RECORD.record_sha256


@given(st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 3, 4]))
def test_the_version_is_covered(one: int, other: int) -> None:
    digests = {record_digest(replace(RECORD, version=version)) for version in (one, other)}
    assert len(digests) == len({one, other})


def test_sealing_covers_everything_but_itself() -> None:
    assert seal_record(RECORD) == RECORD
    assert record_digest(replace(RECORD, record_sha256="")) == RECORD.record_sha256


@given(st.lists(TEXT.filter(lambda t: "\0" not in t), min_size=2, max_size=5, unique=True), st.data())
def test_an_approved_rule_has_one_name_in_any_order(identities: list[str], data: st.DataObject) -> None:
    other = data.draw(st.permutations(identities))
    names = {software_rule_id(SoftwareRule("approved", tuple(order))) for order in (identities, other)}
    assert len(names) == 1


@given(TEXT, TEXT)
def test_session_ids_share_no_fingerprint(one: str, other: str) -> None:
    assert (session_fingerprint(one) == session_fingerprint(other)) == (one == other)
