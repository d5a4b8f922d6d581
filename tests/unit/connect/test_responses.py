"""Answers as messages: what a strict reader of the published form reads is what we meant, and the record checks."""

import json
from dataclasses import replace

from app.connect.responses import Json, describe_response, run_response
from app.dispatch.admission import Candidate
from app.dispatch.outcome import Finished
from plimsoll.contract.advice import Advice
from plimsoll.contract.requests import File, JavaScript, Kind, Project, RunRequest
from plimsoll.contract.results import Artifact, Outcome, ProjectResult, ScriptResult, StepResult
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Environment, Resources
from plimsoll.records import Stated, check_answer, make_record
from plimsoll.records.wireresults import AdviceMessage, RecordMessage, RunResponseMessage
from tests.support.fakes import EVIDENCE, NOW_MS, accepted, ended, info

REQUEST = RunRequest(JavaScript("1"))
RESULT = ScriptResult(
    Kind.JAVASCRIPT, exit_code=7, timed_out=True, stdout=b"\xff\x00", stderr=b"", stderr_truncated=True
)


def finished() -> Finished:
    begun, end = accepted(), ended(duration_ms=2**53 + 1)
    stated = Stated("wasm", "process", "guest:1", "software:1", begun.instance)
    record = make_record(
        REQUEST, RESULT, stated, policy="policy:1", started_unix_ms=NOW_MS, ended_unix_ms=NOW_MS + 5
    )
    return Finished("a" * 32, "wasm", Tier.PROCESS, EVIDENCE, begun, end, RESULT, record, recorded=True)


def sent(message: Json) -> Json:
    """Through JSON, where nothing may get lost."""
    read: Json = json.loads(json.dumps(message, allow_nan=False))
    assert read == message
    return read


def test_a_run_is_read_back_as_it_was_and_its_record_holds() -> None:
    run = finished()
    message = sent(run_response(run))
    result = RunResponseMessage.model_validate({"javascript": message["javascript"]}).value()
    record = RecordMessage.model_validate(message["record"]).value()
    stated = Stated(
        *(message[name] for name in ("sandbox", "isolation", "environment", "softwareIdentity", "instance"))
    )
    assert (result, record) == (RESULT, run.record)
    assert check_answer(REQUEST, result, record, stated) == ()


ADVICE = (
    Advice(
        "fan_out", "GET /v1/employees/*", 12, "12 calls.", suggested_route="GET /v1/employees?page", ms=2**40
    ),
    Advice("fan_out", "PUT /v1/notes/*", 11, "11 calls."),
    Advice("repeated_read", "GET /v1/employees", 5, "At least 5 calls.", at_least=True, bytes_back=2**40),
)


def test_advice_has_the_members_that_published_clients_read_and_is_in_no_digest() -> None:
    plain, advised = (sent(run_response(replace(finished(), advice=advice))) for advice in (None, ADVICE))
    findings = advised["javascript"].pop("advice")
    assert plain["javascript"].pop("advice") == []
    assert advised == plain
    assert findings[0] == {
        "pattern": "fan_out",
        "severity": "info",
        "remedy": "list_route",
        "method": "GET",
        "route": "/v1/employees/*",
        "detail": "12 calls.",
        "suggestedMethod": "GET",
        "suggestedRoute": "/v1/employees?page",
        "extraCalls": 11,
        "addedLatencyMs": str(2**40),
        "bytesMoved": "0",
    }
    told = [(each["remedy"], each["suggestedRoute"], each["extraCalls"]) for each in findings[1:]]
    assert told == [("batch_route", "", 10), ("keep_answer", "", 5)]
    assert AdviceMessage.model_validate(findings[2]).bytes_moved == 2**40
    read = RunResponseMessage.model_validate(
        {"javascript": plain["javascript"] | {"advice": findings}}
    ).value()
    assert read == RESULT


def test_integers_of_64_bits_are_text_and_the_others_numbers() -> None:
    message = sent(run_response(finished()))
    assert message["durationMs"] == str(2**53 + 1)
    record = message["record"]
    assert (record["startedUnixMs"], record["sequence"], record["version"]) == (str(NOW_MS), "0", 4)
    assert message["javascript"]["exitCode"] == 7


def test_output_is_base64_of_the_exact_bytes() -> None:
    assert run_response(finished())["javascript"]["stdout"] == "/wA="


def test_the_first_provider_is_described_as_it_stands() -> None:
    candidate = Candidate("wasm", Tier.PROCESS, info(resources=Resources(64, cpus=0.5)))
    message = sent(describe_response(candidate))
    assert (message["sandbox"], message["isolation"], message["protocol"]) == ("wasm", "process", 4)
    assert message["javascriptEnvironment"] == {
        "identity": "guest:1",
        "softwareIdentity": "software:1",
        "maxTimeoutMs": 300_000,
        "languages": ["javascript"],
    }
    assert message["resources"] == {"memoryMb": 64, "cpus": 0.5}
    assert (message["supportsProject"], message["supportsSessions"]) == (False, False)
    assert describe_response(replace(candidate, away=True))["isolation"] == "none"


def test_a_kind_that_is_served_is_described() -> None:
    served = {Kind.PROJECT: Environment("image:1", "", 1000, ("python",))}
    message = sent(describe_response(Candidate("docker", Tier.CONTAINER, info(environments=served))))
    assert message["supportsProject"] is True
    assert message["projectEnvironment"]["languages"] == ["python"]
    assert "javascriptEnvironment" not in message


def test_grants_need_a_broker_and_guests_that_can_call_it() -> None:
    for grants in (False, True):
        served = {Kind.PROJECT: Environment("image:1", "", 1000, ("python",), grants=grants)}
        candidate = Candidate("docker", Tier.CONTAINER, info(environments=served))
        for broker in (False, True):
            message = sent(describe_response(candidate, broker=broker))
            assert message["supportsProjectGrants"] is (broker and grants)
            assert message["supportsJavascriptGrants"] is False
    assert sent(describe_response(None, broker=True))["supportsProjectGrants"] is False


def test_without_a_provider_nothing_meets_any_floor() -> None:
    message = sent(describe_response(None))
    assert (message["sandbox"], message["isolation"]) == ("", "none")
    assert describe_response(Candidate("wasm", Tier.PROCESS, None))["isolation"] == "none"


PROJECT = RunRequest(Project((File("in", b"x"),), ("one", "two"), ("out",)))
PROJECT_RESULT = ProjectResult(
    Outcome.RUNNER_FAILED,
    "it broke",
    artifacts_truncated=True,
    steps=(
        StepResult("one", stdout=b"\xff", duration_ms=2**53 + 1),
        StepResult("two", 3, timed_out=True, stderr=b"e", stdout_truncated=True),
    ),
    artifacts=(Artifact("out", bytes(range(256))),),
)


def test_a_project_is_read_back_as_it_was_and_its_record_holds() -> None:
    run = replace(finished(), result=PROJECT_RESULT)
    stated = Stated("wasm", "process", "guest:1", "software:1", run.accepted.instance)
    record = make_record(
        PROJECT, PROJECT_RESULT, stated, policy="policy:1", started_unix_ms=NOW_MS, ended_unix_ms=NOW_MS + 5
    )
    message = sent(run_response(replace(run, record=record)))
    assert "javascript" not in message
    result = RunResponseMessage.model_validate({"project": message["project"]}).value()
    assert result == PROJECT_RESULT
    assert check_answer(PROJECT, result, record, stated) == ()
    assert message["project"]["outcome"] == "PROJECT_OUTCOME_RUNNER_FAILED"
    assert message["project"]["steps"][0]["durationMs"] == str(2**53 + 1)
    assert (message["project"]["steps"][1]["exitCode"], message["project"]["advice"]) == (3, [])
