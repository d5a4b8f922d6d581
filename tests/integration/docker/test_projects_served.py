"""The service over real containers: what clients get of projects, by both APIs and from the command line."""

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plimsoll
from plimsoll.cli import main
from plimsoll.client import errors
from plimsoll.contract.results import Artifact, Outcome
from tests.conftest import require
from tests.integration.connect.published import PYTHON, judge
from tests.integration.docker.conftest import RUNTIME_PARAMS
from tests.support import tamper
from tests.support.docker import Daemon
from tests.support.service import Running, environment, make_caller, started

pytestmark = [pytest.mark.component("docker"), pytest.mark.timeout(400)]

ALL_BYTES = bytes(range(256))
FILES: dict[str, str | bytes | Path] = {
    "sum.py": "print(sum(map(int, open('in.txt', newline=''))))\r\n",
    "in.txt": b"1\r\n41\r\n",
    "raw/all.bin": ALL_BYTES,
}
STEPS = ("python3 sum.py > out.txt", "cat out.txt; printf 'e\\377' >&2")
ARTIFACTS = ("out.txt", "raw/all.bin", "absent")


@pytest.fixture(
    scope="module",
    params=RUNTIME_PARAMS,
)
def service(
    request: pytest.FixtureRequest, docker: Daemon, image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Running, str]]:
    """One service for each runtime, and a caller's token."""
    folder = tmp_path_factory.mktemp("projects")
    environ = environment(
        folder / "data",
        SANDBOX_PROVIDER=f"docker@{request.param}",
        **docker.settings(image),
        SANDBOX_RATE_PER_MIN="0",
    )
    token = make_caller(environ, "caller")
    with started(environ, folder / "log", start_s=180) as running:
        yield running, token


@pytest.fixture
def served(service: tuple[Running, str], monkeypatch: pytest.MonkeyPatch) -> Running:
    running, token = service
    monkeypatch.setenv("PLIMSOLL_TOKEN", token)
    monkeypatch.setenv("PLIMSOLL_URL", running.url)
    return running


def test_a_project_by_every_way_there_is(
    served: Running, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with plimsoll.Client(deadline=120) as client:
        run = client.run_project(
            FILES, STEPS, ARTIFACTS, floor="container", timeout=60, idempotency_key="one"
        )
        assert run.ok, run
        assert [step.stdout for step in run.steps] == [b"", b"42\n"]
        assert run.steps[1].stderr == b"e\xff"
        assert run.artifacts == (Artifact("out.txt", b"42\n"), Artifact("raw/all.bin", ALL_BYTES))
        again = client.run_project(
            FILES, STEPS, ARTIFACTS, floor="container", timeout=60, idempotency_key="one"
        )
        assert again.record == run.record
        assert client.start_project(FILES, STEPS, ARTIFACTS).wait(120).ok
        with client.stream_project(FILES, (*STEPS, "exit 4", "never"), ARTIFACTS) as stream:
            ended = [(each.step, each.exit_code) for each in stream if isinstance(each, plimsoll.StepEnded)]
        assert ended == [(0, 0), (1, 0), (2, 4)]
        assert (stream.result.outcome, stream.result.exit_code) == (Outcome.COMPLETED, 4)
        assert client.run_python("print(6 * 7)").stdout == b"42\n"
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "in.txt").write_bytes(b"a\r\n")
    command = ["project", str(folder), "--step", "cat in.txt | tee out.txt", "--artifact", "out.txt"]
    assert main([*command, "-o", str(tmp_path / "out")]) == 0
    assert "outcome=completed steps=1/1 artifacts=1 exit=0" in capfd.readouterr().err
    assert (tmp_path / "out" / "out.txt").read_bytes() == b"a\r\n"


def test_ends_that_the_host_decides_are_results_of_their_steps(served: Running) -> None:
    assert served.url
    with plimsoll.Client(deadline=120) as client:
        late = client.run_project({}, ["echo a", "echo b; sleep 60", "echo c"], timeout=3)
        assert (late.outcome, [step.timed_out for step in late.steps]) == (Outcome.TIMED_OUT, [False, True])
        assert (late.steps[1].stdout, late.exit_code) == (b"b\n", 124)
        flood = client.run_project({}, ["echo a", "yes"], timeout=60)
        assert (flood.outcome, flood.exit_code) == (Outcome.RUNNER_FAILED, 153)
        assert (flood.steps[0].stdout, flood.steps[1].stdout_truncated) == (b"a\n", True)
        # Cancelled while its second step runs: a run whose container is not there yet would not have been dispatched.
        with client.stream_project({}, ["echo a", "echo b; sleep 60"]) as stream:
            run_id = ""
            for event in stream:
                if isinstance(event, plimsoll.Accepted):
                    run_id = event.id
                if isinstance(event, plimsoll.Output) and event.step == 1:
                    assert client.cancel(run_id) in {"cancelled", "requested"}
        ended = stream.result
        assert (ended.cancelled, ended.ok) == (True, False)
        assert [step.stdout for step in ended.steps] == [b"a\n", b"b\n"]


def test_the_published_client_judges_it(served: Running) -> None:
    require(
        "published-client",
        available=PYTHON.exists(),
        why="there is no .venv-published (`make test` makes it)",
    )
    token = os.environ["PLIMSOLL_TOKEN"]
    given: dict[str, Any] = {
        "files": {"in.txt": "a\n"},
        "steps": ["cat in.txt > b", "cat b"],
        "artifacts": ["b"],
    }
    (judged,) = judge(served.url, token, ("run_project", given))
    assert judged.result["outcome"] == "completed"
    assert base64.b64decode(judged.result["steps"][1]["stdout"]) == b"a\n"
    assert [base64.b64decode(each["content"]) for each in judged.result["artifacts"]] == [b"a\n"]
    with tamper.proxy(served.url, tamper.alters(b'"content":"YQo="', b'"content":"Ygo="')) as between:
        (fooled,) = judge(between.url, token, ("run_project", given))
    assert fooled.verdict == ("RecordMismatchError", None)
    with (
        tamper.proxy(
            served.url, tamper.alters(rb'"path":"b","content":"a', rb'"path":"b","content":"z')
        ) as between,
        plimsoll.Client(between.url) as client,
        pytest.raises(errors.RecordMismatch),
    ):
        client.run_project(given["files"], given["steps"], given["artifacts"])
