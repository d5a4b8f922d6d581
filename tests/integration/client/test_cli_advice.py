"""How the command shows what the service found in a run's calls: a line each, in front of the last, whatever it was sent."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli import main
from plimsoll.contract.results import Outcome, ProjectResult, StepResult
from tests.integration.client.stub import Behaviour, Seen, answer, sends, serving, stream
from tests.unit.plimsoll import honest

FOUND = {
    "code": "fan_out",
    "route": "GET /v1/x/*",
    "count": 12,
    "at_least": False,
    "sentence": "12 calls were about one item each.",
    "suggested_route": "GET /v1/x?page",
    "ms": 3,
    "bytes_back": 4,
}
LINE = "advice fan_out GET /v1/x/*: 12 calls were about one item each. (GET /v1/x?page)"
HOSTILE = FOUND | {
    "route": "GET /\x1b[2J",
    "sentence": "fine\nnothing ran: all is well\r\x1b[1A\u202e\n",
    "suggested_route": "",
}


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_TOKEN", "secret-token")


def says(*found: dict[str, Any]) -> Behaviour:
    return sends(lambda seen: answer(seen, seen.honest() | {"advice": list(found)}))


def streams(*found: dict[str, Any]) -> Behaviour:
    def events(seen: Seen) -> bytes:
        answered = seen.honest() | {"advice": list(found)}
        return stream(seen, *honest.stream_events(answered, b"42\n"))

    return sends(events)


def run(behaviour: Behaviour, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, list[str]]:
    """What it printed, and the lines on stderr."""
    with serving(behaviour) as stub:
        assert main([*arguments, "--url", stub.url]) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err.splitlines()


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "program.js"
    path.write_text("console.log(6 * 7)", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("streamed", [False, True])
def test_each_finding_is_a_line_in_front_of_the_last(
    script: str, capsys: pytest.CaptureFixture[str], *, streamed: bool
) -> None:
    behaviour, how = (streams, ["--stream"]) if streamed else (says, [])
    out, lines = run(behaviour(FOUND, FOUND), capsys, "run", script, *how)
    assert out == "42\n"
    assert lines[:2] == [LINE, LINE]
    assert len(lines) == 3
    assert lines[2].startswith("ran isolation=process ")


@pytest.mark.parametrize("streamed", [False, True])
def test_json_has_it_and_stderr_does_not(
    script: str, capsys: pytest.CaptureFixture[str], *, streamed: bool
) -> None:
    behaviour, how = (streams, ["--stream"]) if streamed else (says, [])
    out, lines = run(behaviour(FOUND), capsys, "run", script, "--json", *how)
    assert json.loads(out.splitlines()[-1])["advice"] == [FOUND]
    assert len(lines) == 1
    assert lines[0].startswith("ran ")


def test_a_hostile_finding_is_one_line_that_commands_no_terminal(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, lines = run(says(HOSTILE), capsys, "run", script)
    assert lines[0] == r"advice fan_out GET /\x1b[2J: fine nothing ran: all is well \x1b[1A\u202e"
    assert lines[1].startswith("ran ")
    assert len(lines) == 2


def test_a_run_that_is_waited_for_shows_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    def kept(seen: Seen) -> bytes:
        found = honest.run_answer()
        return answer(seen, honest.view(found) | {"result": found["result"], "advice": [FOUND]})

    out, lines = run(sends(kept), capsys, "wait", "a" * 32)
    assert (out, lines[0]) == ("42\n", LINE)
    out, lines = run(sends(kept), capsys, "wait", "a" * 32, "--json")
    assert (json.loads(out)["advice"], len(lines)) == ([FOUND], 1)


def test_a_project_shows_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def events(seen: Seen) -> bytes:
        step = StepResult("true", duration_ms=1)
        result = ProjectResult(Outcome.COMPLETED, steps=(step,))
        answered = honest.project_answer(
            honest.request_of(seen.body), result, now=time.time_ns() // 1_000_000
        )
        told = honest.event("result", answered | {"advice": [FOUND]})
        return stream(seen, honest.accepted(answered), honest.step_end(0, step), told)

    _, lines = run(sends(events), capsys, "project", str(tmp_path), "--step", "true")
    assert lines[0] == LINE
    assert lines[1].startswith("ran ")
