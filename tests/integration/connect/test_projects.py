"""Projects by both APIs: the published client judges one, ours the other, also with a tampering proxy between."""

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import pytest

import plimsoll
from plimsoll.client import errors
from plimsoll.contract.results import Artifact, Outcome
from tests.integration.connect.published import Call, judge
from tests.integration.service.stand import Stand
from tests.support import tamper
from tests.support.service import make_caller

published = pytest.mark.component("published-client")

FILES: dict[str, Any] = {"in.txt": "a\r\nb\n"}
STEPS = ["out:one err:e1 write:made.txt=42", "cat:in.txt", "hex:ff00 write:more.txt=x"]
ARTIFACTS = ["made.txt", "more.txt", "absent"]
GIVEN: dict[str, Any] = {"files": FILES, "steps": STEPS, "artifacts": ARTIFACTS}


@dataclass(frozen=True, slots=True)
class Served:
    url: str
    token: str = field(repr=False)
    stand: Stand

    def rest(self, body: object, **headers: str) -> httpx2.Response:
        sent = {"authorization": f"Bearer {self.token}"} | headers
        with httpx2.Client(base_url=self.url, trust_env=False, timeout=30) as client:
            return client.post("/v1/runs", json=body, headers=sent)

    def connect(self, message: object, procedure: str = "Run") -> httpx2.Response:
        sent = {"authorization": f"Bearer {self.token}", "connect-protocol-version": "1"}
        path = f"/plimsoll.v1.SandboxService/{procedure}"
        with httpx2.Client(base_url=self.url, trust_env=False, timeout=30) as client:
            return client.post(path, json=message, headers=sent)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    stand = Stand(tmp_path_factory.mktemp("projects"), settings={})
    with stand.service() as service:
        yield Served(service.running.url, make_caller(stand.environ(), "caller"), stand)


def project(**given: Any) -> Call:
    return "run_project", GIVEN | given


@published
def test_the_published_client_runs_a_project_and_checks_its_record(served: Served) -> None:
    (judged,) = judge(served.url, served.token, project(minimum_isolation="process", timeout=20))
    result = judged.result
    assert (result["class"], result["outcome"], result["detail"]) == ("ProjectResult", "completed", "")
    assert [step["command"] for step in result["steps"]] == STEPS
    assert [base64.b64decode(step["stdout"]) for step in result["steps"]] == [
        b"one",
        b"a\r\nb\n",
        b"\xff\x00",
    ]
    assert base64.b64decode(result["steps"][0]["stderr"]) == b"e1"
    assert [(each["path"], base64.b64decode(each["content"])) for each in result["artifacts"]] == [
        ("made.txt", b"42"),
        ("more.txt", b"x"),
    ]
    assert result["steps"][2]["duration_ms"] == 3
    assert result["record"]["request_sha256"] != ""


ENDS = {
    "timed_out": (["out:1", "slow"], [0, 124]),
    "runner_failed": (["out:1 fail", "out:2"], [1]),
    "completed": (["exit:7", "out:2"], [7]),
}


@published
@pytest.mark.parametrize("outcome", ENDS)
def test_the_published_client_is_told_how_it_went(outcome: str, served: Served) -> None:
    steps, codes = ENDS[outcome]
    (judged,) = judge(served.url, served.token, project(steps=steps))
    assert judged.result["outcome"] == outcome
    assert [step["exit_code"] for step in judged.result["steps"]] == codes


@published
def test_the_published_client_is_told_of_a_failed_setup_and_of_cut_artifacts(served: Served) -> None:
    setup, cut = judge(
        served.url, served.token, project(files={"setup": ""}), project(steps=["write:made.txt=1 truncate"])
    )
    assert (setup.result["outcome"], setup.result["steps"]) == ("setup_failed", [])
    assert (cut.result["artifacts_truncated"], len(cut.result["artifacts"])) == (True, 1)


@published
def test_the_published_client_sees_that_projects_are_served(served: Served) -> None:
    (judged,) = judge(served.url, served.token, ("describe", {}))
    assert judged.result["supports_project"] is True
    assert judged.result["project_environment"]["identity"] == "effect-env:v1"
    assert judged.result["project_environment"]["languages"] == ["javascript", "python"]


@published
def test_a_lying_worker_gives_the_published_client_no_mark(served: Served) -> None:
    (judged,) = judge(served.url, served.token, project(steps=["lie:artifact"]))
    assert (judged.error["code"], judged.error["not_dispatched"]) == ("internal", None)


def test_one_request_has_one_digest_by_both_apis(served: Served) -> None:
    files = [{"path": "in.txt", "content": "a\r\nb\u00e9\n"}]
    coded = [
        {
            "path": "in.txt",
            "content": base64.b64encode(files[0]["content"].encode()).decode(),
            "content_encoding": "base64",
        }
    ]
    how = {"minimum_isolation": "process", "timeout_ms": 5000}
    inner = {"steps": STEPS, "artifacts": ARTIFACTS}
    digests = {
        served.rest({"payload": {"kind": "project", "files": each, **inner}, **how}).json()["record"][
            "request_sha256"
        ]
        for each in (files, coded)
    }
    message = {"protocol": 4, "minimumIsolation": "process", "timeoutMs": "5000"}
    answer = served.connect(message | {"project": {"files": files, **inner}}).json()
    assert digests == {answer["record"]["requestSha256"]}
    assert answer["project"]["outcome"] == "PROJECT_OUTCOME_COMPLETED"
    assert answer["project"]["steps"][0]["durationMs"] == "1"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no steps": ({"steps": []}, "project.steps"),
    "a path that leads out": ({"artifacts": ["../x"]}, "project.artifacts.0"),
    "a file twice": ({"files": [{"path": "a"}, {"path": "a"}]}, "project.files"),
    "an encoding": (
        {"files": [{"path": "a", "content": "", "contentEncoding": "base64"}]},
        "contentEncoding",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_rest_refuses_is_refused_here_by_the_names_of_this_api(name: str, served: Served) -> None:
    changed, field_name = REFUSED[name]
    answer = served.connect({"protocol": 4, "project": {"steps": ["out:1"]} | changed})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument")
    assert answer.headers["plimsoll-not-dispatched"] == "request"
    assert field_name in answer.json()["message"]


# --- something between ---------------------------------------------------------------------------------------------------

TWO = base64.b64encode(b"two").decode()


def rewrites(change: Callable[[dict[str, Any]], None], *path: str) -> tamper.Tamper:
    """Another project result in the answer, changed as a program that knows the shapes would."""

    def between(passage: tamper.Passage) -> None:
        answer = json.loads(passage.answer.body)
        found = answer
        for name in path:
            found = found[name]
        before = json.dumps(answer)
        change(found)
        assert json.dumps(answer) != before, "nothing was altered"
        body = json.dumps(answer).encode()
        passage.send(replace(passage.answer, body=body))

    return between


def swap(found: list[Any]) -> None:
    found[0], found[1] = found[1], found[0]


def put(key: str, value: Any) -> Callable[[Any], None]:
    def change(found: Any) -> None:
        found[key] = value

    return change


def at(number: int, key: str, value: Any, name: str) -> Callable[[dict[str, Any]], None]:
    def change(found: dict[str, Any]) -> None:
        found[name][number][key] = value

    return change


def of(name: str, change: Callable[[list[Any]], Any]) -> Callable[[dict[str, Any]], None]:
    def apply(found: dict[str, Any]) -> None:
        change(found[name])

    return apply


Change = Callable[[dict[str, Any]], None]
BOTH: dict[str, tuple[Change, Change]] = {
    "output of a step": (at(0, "stdout", "two", "steps"), at(0, "stdout", TWO, "steps")),
    "errors of a step": (at(1, "stderr", "x", "steps"), at(1, "stderr", TWO, "steps")),
    "exit code of a step": (at(1, "exit_code", 9, "steps"), at(1, "exitCode", 9, "steps")),
    "deadline of a step": (at(1, "timed_out", True, "steps"), at(1, "timedOut", True, "steps")),
    "cut of a step": (at(1, "stdout_truncated", True, "steps"), at(1, "stdoutTruncated", True, "steps")),
    "command of a step": (at(2, "command", "other", "steps"), at(2, "command", "other", "steps")),
    "steps swapped": (of("steps", swap), of("steps", swap)),
    "a step dropped": (of("steps", list.pop), of("steps", list.pop)),
    "a byte of an artifact": (at(0, "content", "43", "artifacts"), at(0, "content", "NDM=", "artifacts")),
    "an artifact renamed": (at(0, "path", "absent", "artifacts"), at(0, "path", "absent", "artifacts")),
    "an artifact dropped": (of("artifacts", list.pop), of("artifacts", list.pop)),
    "artifacts swapped": (of("artifacts", swap), of("artifacts", swap)),
    "outcome": (put("outcome", "timed_out"), put("outcome", "PROJECT_OUTCOME_TIMED_OUT")),
    "words about the outcome": (put("outcome_detail", "well"), put("outcomeDetail", "well")),
    "artifacts said to be cut": (put("artifacts_truncated", True), put("artifactsTruncated", True)),
}


@published
@pytest.mark.parametrize("name", BOTH)
def test_the_published_client_is_not_fooled(name: str, served: Served) -> None:
    with tamper.proxy(served.url, rewrites(BOTH[name][1], "project")) as between:
        (outcome,) = judge(between.url, served.token, project())
    assert outcome.verdict == ("RecordMismatchError", None)
    assert [request.target for request in between.requests] == ["/plimsoll.v1.SandboxService/Run"]


def run_sync(url: str, token: str) -> None:
    with plimsoll.Client(url, token) as client:
        client.run_project(FILES, STEPS, ARTIFACTS)


def run_async(url: str, token: str) -> None:
    async def main() -> None:
        async with plimsoll.AsyncClient(url, token) as client:
            await client.run_project(FILES, STEPS, ARTIFACTS)

    asyncio.run(main())


@pytest.mark.parametrize("run", [run_sync, run_async], ids=["sync", "async"])
@pytest.mark.parametrize("name", BOTH)
def test_our_client_is_not_fooled(name: str, run: Callable[[str, str], None], served: Served) -> None:
    with (
        tamper.proxy(served.url, rewrites(BOTH[name][0], "result")) as between,
        pytest.raises(errors.RecordMismatch) as caught,
    ):
        run(between.url, served.token)
    assert caught.value.not_dispatched is None
    assert isinstance(caught.value.result, plimsoll.ProjectRun)
    assert [request.target for request in between.requests] == ["/v1/runs"]


STREAMS: dict[str, tuple[bytes, bytes]] = {
    "output": (rb'event: stdout\ndata: {"data": "one"', b'event: stdout\ndata: {"data": "two"'),
    "the step of output": (rb'(event: stderr\ndata: .*"step": )0', rb"\g<1>1"),
    "the exit code of a step": (rb'(event: step\ndata: {"step": 1, "exit_code": )0', rb"\g<1>5"),
    "a dropped step": (rb'event: step\ndata: {"step": 2.*\n\n', b""),
    "a dropped output": (rb"event: stderr\n.*\n\n", b""),
    "an artifact in the result": (rb'"content":"42"', b'"content":"43"'),
}


@pytest.mark.parametrize("name", STREAMS)
def test_our_client_is_not_fooled_by_a_stream(name: str, served: Served) -> None:
    with (
        tamper.proxy(served.url, tamper.alters(*STREAMS[name])) as between,
        plimsoll.Client(between.url, served.token) as client,
        pytest.raises(errors.PlimsollError) as caught,
        client.stream_project(FILES, STEPS, ARTIFACTS) as stream,
    ):
        list(stream)
    assert isinstance(caught.value, errors.RecordMismatch | errors.MalformedResponse)
    assert b"nothing to alter" not in str(caught.value).encode()
    assert caught.value.not_dispatched is None


# --- our client, unhindered ----------------------------------------------------------------------------------------------


def expected(run: plimsoll.ProjectRun) -> bool:
    return (
        run.ok
        and [step.command for step in run.steps] == STEPS
        and run.artifacts == (Artifact("made.txt", b"42"), Artifact("more.txt", b"x"))
        and run.outcome is Outcome.COMPLETED
    )


def test_our_client_runs_starts_streams_and_asks_again(served: Served) -> None:
    with (
        tamper.proxy(served.url, tamper.honest) as between,
        plimsoll.Client(between.url, served.token) as client,
    ):
        assert expected(client.run_project(FILES, STEPS, ARTIFACTS, floor="process"))
        handle = client.start_project(FILES, STEPS, ARTIFACTS)
        assert expected(handle.wait())
        view = client.wait_run(handle.id)
        assert (view.kind, view.state) == ("project", "finished")
        with client.stream_project(FILES, STEPS, ARTIFACTS) as stream:
            events = list(stream)
        assert [event.step for event in events if isinstance(event, plimsoll.StepEnded)] == [0, 1, 2]
        assert expected(stream.result)
        first, again = (client.run_project(FILES, STEPS, ARTIFACTS, idempotency_key="one") for _ in range(2))
        assert expected(first)
        assert first.record == again.record
        with client.stream_project(FILES, STEPS, ARTIFACTS, idempotency_key="one") as stored:
            assert [event for event in stored if isinstance(event, plimsoll.StepEnded)]
        assert stored.result.record == first.record
        assert client.run_python("out:3 exit:1").exit_code == 1


def test_our_asynchronous_client_does_too(served: Served) -> None:
    async def main() -> None:
        async with plimsoll.AsyncClient(served.url, served.token) as client:
            assert expected(await client.run_project(FILES, STEPS, ARTIFACTS))
            handle = await client.start_project(FILES, STEPS, ARTIFACTS)
            assert expected(await handle.wait())
            async with client.stream_project(FILES, STEPS, ARTIFACTS) as stream:
                events = [event async for event in stream]
            assert [event.step for event in events if isinstance(event, plimsoll.StepEnded)] == [0, 1, 2]
            assert expected(stream.result)

    asyncio.run(main())


def test_our_client_hears_of_a_lie_without_a_mark(served: Served) -> None:
    with plimsoll.Client(served.url, served.token) as client:
        with pytest.raises(errors.MayHaveRun) as caught:
            client.run_project({}, ["lie:step"])
        assert caught.value.not_dispatched is None
        with pytest.raises(errors.MayHaveRun), client.stream_project({}, ["out:1 lie:artifact"]) as stream:
            list(stream)
