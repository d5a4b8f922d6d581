"""Reading what a service keeps, and check 23: digests are recomputed before anything is handed on."""

from typing import Any

import pytest

from plimsoll.client import errors
from plimsoll.contract.refusals import Reason
from tests.unit.plimsoll import honest
from tests.unit.plimsoll.client.exchanges import core, play, raises

RUN = "a" * 32


def test_23_describe() -> None:
    assert play(core().describe(), honest.description()).provider == "wasm"


GRANT = {
    "name": "hr-read",
    "description": "Reads employees.",
    "routes": ["GET /v1/employees/*"],
    "max_calls": 50,
    "catalog": "",
    "preamble": {},
}


def test_the_grants_of_a_caller() -> None:
    (found,) = play(core().grants(), {"grants": [GRANT]})
    assert (found.name, found.routes, found.max_calls) == ("hr-read", ["GET /v1/employees/*"], 50)
    prepared = core().grants()
    with raises(prepared, errors.MalformedResponse):
        play(prepared, {"grants": [GRANT | {"max_calls": "50"}]})


CALLS = {
    "sent": 2,
    "delivered": 1,
    "bytes_out": 0,
    "bytes_back": 27,
    "probes": 0,
    "failed": {"denied": 1, "upstream": 1},
    "entries": [
        {
            "route": "GET /v1/employees/*",
            "status": 200,
            "delivered": True,
            "bytes_back": 27,
            "ms": 4,
        }
    ],
    "left_out": 1,
}


def test_what_a_run_called_is_on_the_kept_run() -> None:
    kept = honest.view(honest.run_answer()) | {"grant_profile": "hr-read", "calls": CALLS}
    found = play(core().get_run(RUN, 0), kept)
    assert found.grant_profile == "hr-read"
    assert found.calls is not None
    assert (found.calls.delivered, found.calls.failed["denied"]) == (1, 1)
    assert found.calls.entries[0].route == "GET /v1/employees/*"


@pytest.mark.parametrize("protocol", [3, 5])
def test_23_another_protocol(protocol: int) -> None:
    prepared = core().describe()
    with raises(prepared, errors.ProtocolMismatch) as caught:
        play(prepared, honest.description(protocol))
    assert caught[0].not_dispatched is Reason.PROTOCOL
    assert caught[0].description is not None
    with raises(prepared, errors.ProtocolMismatch) as caught:
        play(prepared, {"protocol": protocol, "shape": "other"})
    assert caught[0].description is None


@pytest.mark.parametrize("protocol", [None, "4", 4.0, True])
def test_23_a_protocol_that_is_no_number(protocol: Any) -> None:
    prepared = core().describe()
    with pytest.raises((errors.MalformedResponse, errors.ProtocolMismatch)):
        play(prepared, honest.description() | {"protocol": protocol})


def test_a_kept_run_and_its_record() -> None:
    answer = honest.run_answer()
    assert play(core().get_run(RUN, 0), honest.view(answer)).state == "finished"
    assert play(core().get_run(RUN, 0), honest.view(answer) | {"result": answer["result"]}).result is not None
    record = play(core().record(RUN), answer["record"])
    assert record.record_sha256 == answer["record"]["record_sha256"]
    page = play(core().runs(2, "c&d"), {"runs": [honest.view(answer)], "next_cursor": None})
    assert len(page.runs) == 1


def test_a_run_without_a_record_is_its_state() -> None:
    view = honest.view(honest.run_answer()) | {"record": None, "state": "may_have_run", "settled": False}
    assert play(core().get_run(RUN, 0), view).state == "may_have_run"


@pytest.mark.parametrize("field", ["provider", "environment", "software_identity", "instance"])
def test_a_kept_run_that_says_something_else_than_its_record(field: str) -> None:
    prepared = core().get_run(RUN, 0)
    with raises(prepared, errors.RecordMismatch) as caught:
        play(prepared, honest.view(honest.run_answer()) | {field: "other"})
    assert caught[0].fields == (field,)


def test_a_kept_result_that_is_not_the_records() -> None:
    answer = honest.run_answer()
    altered = answer["result"] | {"stdout": "43\n"}
    prepared = core().get_run(RUN, 0)
    with raises(prepared, errors.RecordMismatch) as caught:
        play(prepared, honest.view(answer) | {"result": altered})
    assert caught[0].fields == ("result_sha256",)


def test_a_record_that_was_touched() -> None:
    record = honest.run_answer()["record"]
    prepared = core().record(RUN)
    with raises(prepared, errors.RecordMismatch):
        play(prepared, record | {"policy": "other"})
    with raises(prepared, errors.RecordVersion):
        play(prepared, record | {"version": 9})


def test_evidence_is_what_its_digest_names() -> None:
    prepared = core().evidence(honest.EVIDENCE)
    assert play(prepared, honest.evidence()).facts[0].name == "seccomp"
    altered = honest.evidence()
    altered["facts"][0]["value"] = "off"
    with raises(prepared, errors.EvidenceMismatch):
        play(prepared, altered)
    with raises(prepared, errors.EvidenceMismatch):
        play(prepared, honest.evidence() | {"sha256": "0" * 64})
    other = core().evidence("0" * 64)
    with raises(other, errors.EvidenceMismatch):
        play(other, honest.evidence())


def test_paths() -> None:
    one = core()
    assert one.get_run(RUN, 5).path == f"/v1/runs/{RUN}?wait=5"
    assert one.get_run(RUN, 0).path == f"/v1/runs/{RUN}"
    assert one.record(RUN).path == f"/v1/runs/{RUN}/record"
    assert one.runs(None, None).path == "/v1/runs"
    assert one.runs(7, "a/b c").path == "/v1/runs?limit=7&cursor=a%2Fb+c"


@pytest.mark.parametrize("run_id", ["", "../x", "A" * 32, "a" * 33, "a" * 32 + "\n", None])
def test_an_ill_formed_id_is_not_sent(run_id: Any) -> None:
    for build in (
        lambda: core().record(run_id),
        lambda: core().get_run(run_id, 0),
        lambda: core().evidence(run_id),
    ):
        with pytest.raises(errors.InvalidRequest) as caught:
            build()
        assert caught.value.not_dispatched is Reason.REQUEST


@pytest.mark.parametrize("wait", [-1, 61, True, 1.5])
def test_the_wait_is_bounded(wait: Any) -> None:
    with pytest.raises(errors.InvalidRequest):
        core().get_run(RUN, wait)
    with pytest.raises(errors.InvalidRequest):
        core().runs(wait if wait != 61 else 101, None)
