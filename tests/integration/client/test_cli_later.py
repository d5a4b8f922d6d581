"""`plimsoll run --stream`, `--key`, `--later`, `wait` and `cancel` against a stub service."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli import main
from tests.integration.client.stub import Behaviour, Seen, answer, sends, serving, stream
from tests.integration.client.test_cli import on_a_terminal
from tests.integration.client.test_cli import run as run_command
from tests.unit.plimsoll import honest

RUN = "a" * 32


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "program.js"
    path.write_text("console.log(6 * 7)", encoding="utf-8")
    return str(path)


@pytest.fixture(autouse=True)
def no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLIMSOLL_URL", raising=False)
    monkeypatch.setenv("PLIMSOLL_TOKEN", "secret-token")


def streams(*pieces: bytes, **how: Any) -> Behaviour:
    def make(seen: Seen) -> bytes:
        true = seen.honest(stdout=b"".join(pieces), **how)
        return stream(seen, *honest.stream_events(true, *pieces))

    return sends(make)


def test_a_stream_gives_bytes_summary_and_status(script: str) -> None:
    with serving(streams(b"\x1b[0m", b"\xff\r", b"\n", exit_code=3)) as stub:
        done = run_command("run", script, "--stream", "--floor", "process", "--url", stub.url)
    assert (done.returncode, done.stdout) == (3, b"\x1b[0m\xff\r\n")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("ran isolation=process provider=wasm exit=3 duration=3ms record=")
    assert stub.seen[0].header("accept") == "text/event-stream"


def test_a_stream_as_json_is_a_line_for_each_event(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(streams(b"4", b"\xff")) as stub:
        assert main(["run", script, "--stream", "--json", "--url", stub.url]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("event", "run") for line in lines] == ["accepted", "stdout", "stdout", "run"]
    assert (lines[2]["data"], lines[2]["encoding"]) == ("/w==", "base64")
    assert lines[3]["ran"] is True


@pytest.mark.parametrize(
    ("make", "status", "first"),
    [
        (lambda s, events: stream(s, *events[:-1]), 70, "may have run: "),
        (lambda s, events: stream(s, *events, events[-1]), 70, "may have run: "),
        (
            lambda s, _: answer(s, honest.problem("isolation_unmet", 412, "isolation"), status=412),
            69,
            "nothing ran (isol",
        ),
    ],
)
def test_a_stream_that_fails(
    make: Callable[..., bytes], status: int, first: str, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviour = sends(lambda s: make(s, honest.stream_events(s.honest(), b"42\n")))
    with serving(behaviour) as stub:
        assert main(["run", script, "--stream", "--url", stub.url]) == status
    assert capsys.readouterr().err.startswith(first)


def test_a_terminal_is_shown_a_stream_escaped_and_its_line_ended(script: str) -> None:
    with serving(streams(b"\x1b]0;ow", b"ned\x07\xe2\x9b", b"\xb4\xff")) as stub:
        shown = on_a_terminal("run", script, "--stream", "--url", stub.url)
    assert "\\x1b]0;owned\\x07\N{FERRY}\\xff\r\nran isolation".encode() in shown
    assert shown.count(b"\x1b") == 0


def test_output_is_written_as_it_comes(script: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    came: list[bytes] = []

    def behave(seen: Seen, connection: Any) -> None:
        first, one, two, last = honest.stream_events(seen.honest(stdout=b"1\n2\n"), b"1\n", b"2\n")
        whole = stream(seen, first, one, two, last)
        cut = whole.index(two) - 5
        connection.sendall(whole[:cut])
        until = time.monotonic() + 5
        while not b"".join(came) and time.monotonic() < until:
            time.sleep(0.02)
            came.append(capsysbinary.readouterr().out)
        connection.sendall(whole[cut:])

    with serving(behave) as stub:
        assert main(["run", script, "--stream", "--url", stub.url]) == 0
    assert b"".join(came) == b"1\n"
    assert capsysbinary.readouterr().out == b"2\n"


def test_a_key(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(sends(lambda seen: answer(seen, honest.pending(seen.honest()), status=202))) as stub:
        assert main(["run", script, "--key", "report-7", "--url", stub.url, "--json"]) == 70
    assert stub.seen[0].header("idempotency-key") == "report-7"
    captured = capsys.readouterr()
    assert captured.err.startswith("may have run: ")
    assert captured.err.endswith(f"; run {RUN}\n")
    assert json.loads(captured.out)["run_id"] == RUN


def test_a_key_with_another_request(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    problem = honest.problem("key_conflict", 409, "request")
    with serving(sends(lambda seen: answer(seen, problem, status=409))) as stub:
        assert main(["run", script, "--key", "report-7", "--url", stub.url]) == 64
        assert main(["run", script, "--key", "report 7", "--url", stub.url]) == 64
    assert len(stub.seen) == 1
    assert capsys.readouterr().err.startswith("nothing ran (request): ")


def test_later(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(sends(lambda seen: answer(seen, honest.pending(seen.honest()), status=202))) as stub:
        assert main(["run", script, "--later", "--url", stub.url]) == 0
        captured = capsys.readouterr()
        assert main(["run", script, "--later", "--json", "--url", stub.url]) == 0
    assert captured.out == f"{RUN}\n"
    assert captured.err.startswith(f"started {RUN}")
    assert json.loads(capsys.readouterr().out) == {"id": RUN}
    assert stub.seen[0].header("prefer") == "respond-async"


def kept(**changed: Any) -> Behaviour:
    true = honest.run_answer(stdout=b"\x1b\xff", exit_code=3)
    view = honest.view(true) | {"exit_code": 3, "result": true["result"]} | changed
    return sends(lambda seen: answer(seen, view))


def test_wait(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with serving(kept()) as stub:
        assert main(["wait", RUN, "--url", stub.url]) == 3
        captured = capsysbinary.readouterr()
        assert captured.out == b"\x1b\xff"
        assert captured.err.startswith(b"ran isolation=process provider=wasm exit=3 duration=3ms record=")
        assert main(["wait", RUN, "--url", stub.url, "--json"]) == 3
    shown = json.loads(capsysbinary.readouterr().out)
    assert (shown["ran"], shown["state"], shown["result"]["stdout_encoding"]) == (True, "finished", "base64")


def test_wait_for_a_run_whose_output_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(kept(result=None)) as stub:
        assert main(["wait", RUN, "--url", stub.url]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("(its output is not kept)\n")


PENDING = honest.pending(honest.run_answer())
NOTHING = {"state": "not_dispatched", "settled": True, "not_dispatched": {"reason": "capacity"}}


@pytest.mark.parametrize(
    ("view", "status", "first"),
    [
        (PENDING, 70, "may have run: "),
        (PENDING | {"state": "may_have_run", "settled": True}, 70, "may have run: "),
        (PENDING | NOTHING, 69, "nothing ran (capacity): "),
        (PENDING | NOTHING | {"id": "b" * 32}, 70, "may have run: "),
        (b"<html>", 71, "no answer about this run: "),
    ],
)
def test_wait_without_a_result(
    view: Any, status: int, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(sends(lambda seen: answer(seen, view))) as stub:
        assert main(["wait", RUN, "--timeout", "0.1", "--url", stub.url]) == status
    assert capsys.readouterr().err.startswith(first)


@pytest.mark.parametrize("command", ["wait", "cancel"])
def test_a_question_that_is_refused_says_nothing_about_the_run(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = honest.problem("not_found", 404, "request")
    with serving(sends(lambda seen: answer(seen, problem, status=404))) as stub:
        assert main([command, RUN, "--url", stub.url]) == 71
        assert capsys.readouterr().err == f"no answer about this run: {problem['detail']}\n"
        assert main([command, RUN, "--url", stub.url, "--json"]) == 71
    shown = json.loads(capsys.readouterr().out)
    assert (shown["error"], shown["answered"], shown["ran"]) == ("NotFound", False, "unknown")
    assert main([command, RUN, "--url", "http://127.0.0.1:1"]) == 71
    assert capsys.readouterr().err.startswith(
        "no answer about this run: the service at 127.0.0.1:1 could not be"
    )
    assert main([command, "no-id", "--url", "http://127.0.0.1:1"]) == 64


@pytest.mark.parametrize("command", ["run", "wait", "cancel"])
def test_the_help_names_every_exit_status(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert ("71" in capsys.readouterr().out) is (command != "run")


def test_cancel(capsys: pytest.CaptureFixture[str]) -> None:
    said = {"id": RUN, "state": "finished", "outcome": "cancelled"}
    with serving(sends(lambda seen: answer(seen, said))) as stub:
        assert main(["cancel", RUN, "--url", stub.url]) == 0
        assert capsys.readouterr().out == "cancelled\n"
        assert main(["cancel", RUN, "--url", stub.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": RUN, "outcome": "cancelled"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "x", "--stream", "--later"],
        ["wait"],
        ["wait", RUN, "--timeout", "nan"],
        ["wait", RUN, "--timeout", "-1"],
        ["cancel"],
    ],
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 64
    assert "usage: plimsoll" in capsys.readouterr().err
