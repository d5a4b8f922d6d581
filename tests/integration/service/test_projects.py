"""Projects through the whole service: what comes back, is kept, is refused, and what is said when a worker lies or dies."""

import base64
import json
import time
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from app.dispatch.killpoints import KillPoint
from plimsoll.contract import bounds
from plimsoll.contract.rest import RunBody
from plimsoll.contract.results import ProjectResult
from plimsoll.records import request_digest, result_digest
from plimsoll.records.rest import request_from_body, result_from_body
from plimsoll.records.single import check, read
from tests.integration.service.conftest import House
from tests.integration.service.stand import (
    ASYNC,
    EVENTS,
    NONE,
    Json,
    Served,
    Stand,
    bearer,
    events_in,
    json_of,
    keyed,
)

ALL_BYTES = bytes(range(256))
FILES = [
    {"path": "in.txt", "content": "a\r\nb\n"},
    {"path": "raw/all.bin", "content": base64.b64encode(ALL_BYTES).decode(), "content_encoding": "base64"},
]
STEPS = ["out:one err:e1", "cat:in.txt write:made.txt=42", "hex:ff exit:0"]
ARTIFACTS = ["made.txt", "raw/all.bin", "absent"]
WHOLE: Json = {"files": FILES, "steps": STEPS, "artifacts": ARTIFACTS}


def body(**payload: Any) -> Json:
    return {"payload": {"kind": "project", **payload}}


def post(served: Served, sent: Json, token: str = "", headers: Mapping[str, str] = NONE) -> httpx2.Response:
    return served.http.post("/v1/runs", json=sent, headers={**headers, **bearer(token)})


def project(answer: Json) -> ProjectResult:
    """The result of an answer that holds against its own request."""
    from plimsoll.contract.rest import RunAnswer  # noqa: PLC0415 - one use

    result = result_from_body(RunAnswer.model_validate({"recorded": True} | answer).result)
    assert isinstance(result, ProjectResult)
    return result


def logged(house: House, run_id: str, event: str) -> list[Json]:
    lines = house.served.running.lines()
    return [each for each in lines if each.get("run_id") == run_id and each["event"] == event]


def holds(sent: Json, answer: httpx2.Response) -> bool:
    found = check(read(json.dumps(sent).encode(), answer.content))
    return not [each for each in found if each.problem]


def test_steps_and_artifacts_come_back_exactly_and_the_record_covers_them(house: House) -> None:
    sent = body(**WHOLE)
    answer = post(house.served, sent, house.alice)
    assert holds(sent, answer)
    said = json_of(answer)["result"]
    assert (said["kind"], said["outcome"], said["outcome_detail"], said["artifacts_truncated"]) == (
        "project",
        "completed",
        "",
        False,
    )
    first = said["steps"][0]
    assert first == {
        "command": STEPS[0],
        "exit_code": 0,
        "timed_out": False,
        "duration_ms": 1,
        "stdout": "one",
        "stdout_encoding": "utf-8",
        "stdout_truncated": False,
        "stderr": "e1",
        "stderr_encoding": "utf-8",
        "stderr_truncated": False,
    }
    assert said["steps"][1]["stdout"] == "a\r\nb\n"
    assert (said["steps"][2]["stdout"], said["steps"][2]["stdout_encoding"]) == ("/w==", "base64")
    assert said["artifacts"][0] == {"path": "made.txt", "content": "42", "content_encoding": "utf-8"}
    assert [each.content for each in project(json_of(answer)).artifacts] == [b"42", ALL_BYTES]


def test_the_row_counts_the_output_of_all_steps(house: House) -> None:
    sent = body(steps=["out:abc", "out:de err:f exit:3", "out:never"])
    answer = json_of(post(house.served, sent, house.alice))
    assert [step["exit_code"] for step in answer["result"]["steps"]] == [0, 3]
    view = house.served.get(answer["id"], token=house.alice)
    assert (view["kind"], view["exit_code"], view["state"]) == ("project", 3, "finished")
    (line,) = logged(house, answer["id"], "run")
    assert (line["kind"], line["output_bytes"], line["exit_code"]) == ("project", 6, 3)


def test_text_and_base64_of_the_same_bytes_are_one_request(house: House) -> None:
    text = body(files=[{"path": "a", "content": "b\u00e9"}], steps=["out:1"])
    coded = body(
        files=[
            {
                "path": "a",
                "content": base64.b64encode("b\u00e9".encode()).decode(),
                "content_encoding": "base64",
            }
        ],
        steps=["out:1"],
        artifacts=[],
    )
    digests = {
        json_of(post(house.served, sent, house.alice))["record"]["request_sha256"] for sent in (text, coded)
    }
    assert digests == {request_digest(request_from_body(RunBody.model_validate(text)))}


OUTCOMES: dict[str, tuple[Json, str, int, int]] = {
    "the setup failed": (
        {"steps": ["out:1"], "files": [{"path": "setup", "content": ""}]},
        "setup_failed",
        0,
        0,
    ),
    "the deadline in the second step": ({"steps": ["out:1", "out:2 slow", "out:3"]}, "timed_out", 2, 124),
    "the runner failed in the first": ({"steps": ["out:1 fail", "out:2"]}, "runner_failed", 1, 1),
    "a step failed": ({"steps": ["out:1 exit:9", "out:2"]}, "completed", 1, 9),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_how_it_went_is_told_with_the_steps_that_were_begun(name: str, house: House) -> None:
    payload, outcome, steps, exit_code = OUTCOMES[name]
    sent = body(**payload)
    answer = post(house.served, sent, house.alice)
    assert holds(sent, answer)
    said = json_of(answer)["result"]
    assert (said["outcome"], len(said["steps"])) == (outcome, steps)
    assert [step["exit_code"] for step in said["steps"]][-1:] == ([exit_code] if steps else [])
    assert bool(said["outcome_detail"]) == (outcome != "completed")


def test_each_step_has_its_own_cap(house: House) -> None:
    answer = json_of(post(house.served, body(steps=["fill:70000", "fill:65536"]), house.alice))
    first, second = answer["result"]["steps"]
    assert [len(step["stdout"]) for step in (first, second)] == [65536, 65536]
    assert [step["stdout_truncated"] for step in (first, second)] == [True, False]


def test_artifacts_of_eight_mebibytes_come_back_and_are_kept(house: House) -> None:
    sent = body(
        steps=[f"size:big={bounds.ARTIFACTS_BYTES - 2} write:small=ab truncate"], artifacts=["big", "small"]
    )
    headers = keyed("eight-mebibytes")
    answer = post(house.served, sent, house.alice, headers)
    assert holds(sent, answer)
    result = project(json_of(answer))
    assert [len(each.content) for each in result.artifacts] == [bounds.ARTIFACTS_BYTES - 2, 2]
    assert result.artifacts_truncated
    assert post(house.served, sent, house.alice, headers).content == answer.content


# --- kept and streamed ---------------------------------------------------------------------------------------------------


def test_a_key_gets_the_same_bytes_again_and_the_effect_once(house: House) -> None:
    sent = body(**WHOLE | {"steps": ["effect:keyed-project", *STEPS]})
    first, again = (post(house.served, sent, house.alice, keyed("project-1")) for _ in range(2))
    assert first.content == again.content
    assert house.stand.labels()["keyed-project"] == 1
    other = post(house.served, body(**WHOLE), house.alice, keyed("project-1"))
    assert (other.status_code, other.headers["plimsoll-not-dispatched"]) == (409, "request")
    replay = events_in(post(house.served, sent, house.alice, keyed("project-1") | EVENTS).content)
    assert [name for name, _ in replay] == ["accepted", "result"]
    assert replay[1][1] == first.json()


def test_an_asynchronous_project_keeps_its_result(house: House) -> None:
    sent = body(**WHOLE)
    later = post(house.served, sent, house.alice, ASYNC)
    assert later.status_code == 202
    view = house.served.get(later.json()["id"], wait=30, token=house.alice)
    assert (view["state"], view["kind"]) == ("finished", "project")
    assert result_digest(project(view)) == view["record"]["result_sha256"]
    assert view["result"]["artifacts"][0]["content"] == "42"


def test_a_stream_names_the_step_of_output_and_says_how_each_ended(house: House) -> None:
    sent = body(steps=["out:a sleep:20 out:b", "err:c", "exit:4"], artifacts=["x"])
    events = events_in(post(house.served, sent, house.alice, EVENTS).content)
    names = [name for name, _ in events]
    assert (names[0], names[-1]) == ("accepted", "result")
    told = [(name, data["step"], data.get("data"), data.get("exit_code")) for name, data in events[1:-1]]
    assert told == [
        ("stdout", 0, "a", None),
        ("stdout", 0, "b", None),
        ("step", 0, None, 0),
        ("stderr", 1, "c", None),
        ("step", 1, None, 0),
        ("step", 2, None, 4),
    ]
    assert events[-1][1]["result"]["steps"][2]["exit_code"] == 4


def test_a_cancelled_project_says_so_and_keeps_what_its_steps_printed(house: House) -> None:
    later = post(
        house.served, body(steps=["out:before", "out:in effect:cancel-me hang"]), house.alice, ASYNC
    ).json()
    house.stand.await_label("cancel-me")
    assert json_of(house.served.cancel(later["id"], token=house.alice))["outcome"] == "cancelled"
    view = house.served.get(later["id"], wait=10, token=house.alice)
    assert (view["cancelled"], view["exit_code"]) == (True, 130)
    assert [step["stdout"] for step in view["result"]["steps"]] == ["before", "in"]


def test_python_is_a_kind_of_its_own(house: House) -> None:
    sent = {"payload": {"kind": "python", "code": "out:3.11 exit:2"}}
    answer = post(house.served, sent, house.alice)
    assert holds(sent, answer)
    assert (answer.json()["result"]["kind"], answer.json()["result"]["stdout"]) == ("python", "3.11")


# --- what is refused -----------------------------------------------------------------------------------------------------

ONE: Json = {"steps": ["out:1"]}
BIG = "x" * (bounds.FILES_BYTES // 2)
REFUSED: dict[str, tuple[Json, str]] = {
    "no steps": ({}, "payload.steps"),
    "an empty list of steps": ({"steps": []}, "payload.steps"),
    "21 steps": ({"steps": ["a"] * 21}, "payload.steps"),
    "an empty step": ({"steps": ["a", ""]}, "payload.steps.1"),
    "a step with a NUL": ({"steps": ["a\0"]}, "payload.steps.0"),
    "a long step": ({"steps": ["x" * 16_385]}, "payload.steps.0"),
    "a step that is no text": ({"steps": [1]}, "payload.steps.0"),
    "201 files": (ONE | {"files": [{"path": str(n), "content": ""} for n in range(201)]}, "payload.files"),
    "files over 4 MiB": (
        ONE | {"files": [{"path": str(n), "content": BIG + "x" * (n == 1)} for n in range(2)]},
        "payload.files",
    ),
    "a file without content": (ONE | {"files": [{"path": "a"}]}, "payload.files.0.content"),
    "a file twice": (ONE | {"files": [{"path": "a", "content": ""}] * 2}, "payload.files"),
    "no base64": (
        ONE | {"files": [{"path": "a", "content": "?", "content_encoding": "base64"}]},
        "payload.files.0.content",
    ),
    "an unknown encoding": (
        ONE | {"files": [{"path": "a", "content": "", "content_encoding": "gzip"}]},
        "payload.files.0.content_encoding",
    ),
    "a mode": (ONE | {"files": [{"path": "a", "content": "", "mode": 511}]}, "payload.files.0.mode"),
    "101 artifacts": (ONE | {"artifacts": [str(n) for n in range(101)]}, "payload.artifacts"),
    "an artifact twice": (ONE | {"artifacts": ["a", "a"]}, "payload.artifacts"),
    **{
        f"a file at {path[:9]!r}": (ONE | {"files": [{"path": path, "content": ""}]}, "payload.files.0.path")
        for path in ("", "/a", "a//b", "a/../b", ".", "a\\b", "a\nb", "x" * 1025, "\x85")
    },
    **{
        f"an artifact at {path[:9]!r}": (ONE | {"artifacts": ["ok", path]}, "payload.artifacts.1")
        for path in ("", "/a", "a/", "..", "a\\b", "a\tb", "é" * 513)
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_broken_rule_is_named_and_nothing_ran(name: str, house: House) -> None:
    payload, field = REFUSED[name]
    answer = post(house.served, body(**payload), house.alice)
    assert (answer.status_code, answer.headers["plimsoll-not-dispatched"]) == (422, "request")
    assert field in [fault["field"] for fault in answer.json()["errors"]], answer.text


def test_exactly_the_bounds_are_taken(house: House) -> None:
    files = [{"path": str(n), "content": BIG} for n in range(2)] + [{"path": "x" * 1024, "content": ""}]
    step = "out:1" + " begin" * ((bounds.STEP_BYTES - 5) // 6)
    sent = body(
        files=files, steps=[step.ljust(bounds.STEP_BYTES)] * 20, artifacts=[f"no{n}" for n in range(100)]
    )
    assert holds(sent, post(house.served, sent, house.alice))


# --- lies and deaths -----------------------------------------------------------------------------------------------------

LIES: dict[str, tuple[Json, str]] = {
    "a step out of order": ({"steps": ["lie:step", "out:1"]}, "step_out_of_order"),
    "output of another step": ({"steps": ["lie:output", "out:1"]}, "output_of_another_step"),
    "an artifact not asked for": ({"steps": ["lie:artifact"]}, "artifact_not_asked_for"),
    "an artifact twice": ({"steps": ["write:a=1 lie:twice"], "artifacts": ["a"]}, "artifact_twice"),
    "more steps than asked": ({"steps": ["lie:more"]}, "step_out_of_order"),
    "a step after one that failed": ({"steps": ["lie:after exit:1", "out:1"]}, "step_out_of_order"),
    "no outcome": ({"steps": ["lie:outcome"]}, "no_outcome"),
    "endless words about it": ({"steps": ["lie:detail"]}, "outcome_detail_too_long"),
    "a completion without its steps": ({"steps": ["lie:missing", "out:1"]}, "steps_missing"),
    "its end in a broken sandbox": ({"steps": ["out:1", "break"]}, "effect"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_worker_that_lies_may_have_run_it_and_no_result_is_made_up(name: str, house: House) -> None:
    payload, _ = LIES[name]
    answer = post(house.served, body(**payload), house.alice)
    assert (answer.status_code, answer.json()["code"]) == (502, "may_have_run")
    assert "not_dispatched" not in answer.json()
    assert "plimsoll-not-dispatched" not in answer.headers
    view = house.served.get(answer.json()["run_id"], token=house.alice)
    assert (view["state"], view["settled"], "result" in view, "record" in view) == (
        "may_have_run",
        True,
        False,
        False,
    )
    streamed = events_in(post(house.served, body(**payload), house.alice, EVENTS).content)
    assert streamed[-1][0] == "error"
    assert (streamed[-1][1]["code"], "not_dispatched" in streamed[-1][1]) == ("may_have_run", False)
    assert "result" not in [name for name, _ in streamed]


@pytest.mark.parametrize("code", ["lie:step", "lie:artifact", "lie:output", "lie:outcome"])
def test_a_snippet_with_what_only_projects_have_may_have_run(code: str, house: House) -> None:
    answer = house.served.post(code, token=house.alice)
    assert (answer.status_code, answer.json()["code"]) == (502, "may_have_run")


def test_the_cause_of_a_lie_is_logged_by_its_code(house: House) -> None:
    run_id = post(house.served, body(**LIES["an artifact twice"][0]), house.alice).json()["run_id"]
    until = time.monotonic() + 10
    while not (found := logged(house, run_id, "incident.misfit")):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert [each["cause"] for each in found] == ["artifact_twice"]


def test_a_project_whose_worker_was_silent_is_told_whole_by_the_query(tmp_path: Any) -> None:
    """The link is deaf for the end's grace; the worker's table then has steps and artifacts."""
    stand = Stand(tmp_path)
    sent = body(**WHOLE | {"steps": ["effect:silent", *STEPS, "deaf:2500"]}) | {"timeout_ms": 500}
    with stand.service(more={"TEST_PATIENCE": "1"}) as served:
        answer = post(served, sent, headers=keyed("silent"))
        assert answer.status_code == 502, answer.text
        view = served.get(answer.json()["run_id"], wait=30)
        assert view["state"] == "finished", view
        assert result_digest(project(view)) == view["record"]["result_sha256"]
        assert [step["command"] for step in view["result"]["steps"]] == sent["payload"]["steps"]
        assert [each.content for each in project(view).artifacts] == [b"42", ALL_BYTES]
        replay = post(served, sent, headers=keyed("silent"))
        assert replay.json()["result"] == view["result"]
        assert holds(sent, replay)
    assert stand.labels() == {"silent": 1}


@pytest.mark.parametrize(
    "point", [KillPoint.AFTER_ACCEPTED, KillPoint.BEFORE_END_COMMIT, KillPoint.AFTER_END_COMMIT]
)
def test_a_keyed_project_is_told_truthfully_after_a_kill_and_never_runs_twice(
    point: KillPoint, tmp_path: Any
) -> None:
    stand = Stand(tmp_path)
    sent = body(**WHOLE | {"steps": ["effect:killed", *STEPS]})
    short = {"TEST_LEASE_MS": "1000", "TEST_FINAL_MS": "500"}
    with stand.service(point, more=short) as served:
        with pytest.raises(httpx2.TransportError):
            post(served, sent, headers=keyed("k"))
        assert served.running.process.wait(10) == -9
    with stand.service(more=short) as served:
        until = time.monotonic() + 20
        while (answer := post(served, sent, headers=keyed("k"))).status_code == 202:
            assert time.monotonic() < until
            time.sleep(0.05)
        if point is KillPoint.AFTER_END_COMMIT:
            assert holds(sent, answer)
            assert post(served, sent, headers=keyed("k")).content == answer.content
        else:
            assert (answer.status_code, answer.json()["code"]) == (502, "may_have_run")
        stand.check(served.rows())
    assert stand.labels()["killed"] <= 1
