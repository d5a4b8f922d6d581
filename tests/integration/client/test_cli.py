"""`plimsoll run` and `plimsoll describe` against a stub service: bytes, exit status, and what a terminal is shown."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import plimsoll
from plimsoll.cli import main
from tests.integration.client.stub import Behaviour, Seen, answer, sends, serving
from tests.unit.plimsoll import honest

PROGRAM = [sys.executable, "-c", "import sys; from plimsoll.cli import main; sys.exit(main())"]


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "program.js"
    path.write_text("console.log(6 * 7)", encoding="utf-8")
    return str(path)


@pytest.fixture(autouse=True)
def no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLIMSOLL_URL", raising=False)
    monkeypatch.setenv("PLIMSOLL_TOKEN", "secret-token")


def says(**how: Any) -> Behaviour:
    return sends(lambda seen: answer(seen, seen.honest(**how)))


def refuses(code: str, status: int, reason: str | None) -> Behaviour:
    return sends(lambda seen: answer(seen, honest.problem(code, status, reason), status=status))


def run(*arguments: str, stdin: bytes = b"", **environment: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*PROGRAM, *arguments],
        input=stdin,
        capture_output=True,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


def test_bytes_summary_and_status(script: str) -> None:
    with serving(says(stdout=b"\x1b[0m\xff\r\n", exit_code=3)) as stub:
        done = run("run", script, "--floor", "process", "--timeout", "5", PLIMSOLL_URL=stub.url)
    assert (done.returncode, done.stdout) == (3, b"\x1b[0m\xff\r\n")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("ran isolation=process provider=wasm exit=3 duration=3ms record=")
    body = json.loads(stub.seen[0].body)
    assert body == {
        "payload": {"kind": "javascript", "code": "console.log(6 * 7)"},
        "minimum_isolation": "process",
        "timeout_ms": 5000,
    }


def test_stdin_and_a_named_language() -> None:
    with serving(says()) as stub:
        assert run("run", "-", "--url", stub.url, "--lang", "python", stdin=b"print(42)").returncode == 0
    assert json.loads(stub.seen[0].body)["payload"] == {"kind": "python", "code": "print(42)"}


def test_json(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(says(stdout=b"\xff")) as stub:
        assert main(["run", script, "--json", "--url", stub.url]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["stdout"], shown["stdout_encoding"], shown["ran"]) == ("/w==", "base64", True)
    assert shown["record"]["record_sha256"]


def test_a_negative_exit_status_keeps_its_low_bits(script: str) -> None:
    with serving(says(exit_code=-9)) as stub:
        assert main(["run", script, "--url", stub.url]) == 247


@pytest.mark.parametrize(
    ("behaviour", "status", "first"),
    [
        (refuses("isolation_unmet", 412, "isolation"), 69, "nothing ran (isolation): "),
        (refuses("unauthenticated", 401, "permission"), 69, "nothing ran (permission): "),
        (refuses("invalid_request", 422, "request"), 64, "nothing ran (request): "),
        (refuses("may_have_run", 502, None), 70, "may have run: "),
        (refuses("internal", 500, None), 70, "may have run: "),
        (says(tier="none"), 70, "may have run: "),
    ],
)
def test_refusals(
    behaviour: Behaviour, status: int, first: str, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(behaviour) as stub:
        assert main(["run", script, "--url", stub.url, "--json"]) == status
    captured = capsys.readouterr()
    assert captured.err.startswith(first)
    assert json.loads(captured.out)["ran"] == (False if "nothing" in first else "unknown")


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["run", "gone.js", "--url", "http://127.0.0.1:9"], 66, "nothing ran: gone.js: No such file"),
        (["run", "{script}"], 64, "PLIMSOLL_URL"),
        (["run", "{script}", "--url", "http://example.org"], 64, "https"),
        (["run", "{script}", "--url", "http://127.0.0.1:9", "--token-file", "absent"], 66, "absent"),
        (
            ["run", "{script}", "--url", "http://127.0.0.1:9", "--timeout", "0"],
            64,
            "timeout: must be positive",
        ),
        (["run", "{script}", "--url", "http://127.0.0.1:1"], 69, "nothing ran (environment)"),
        (["run", "{program}", "--url", "http://127.0.0.1:1"], 64, "--lang"),
        (["describe", "--url", "http://127.0.0.1:1"], 69, "nothing ran (environment)"),
    ],
)
def test_what_goes_wrong_before_sending(
    arguments: list[str],
    status: int,
    text: str,
    script: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("program.js").rename("program.mjs")
    Path("program.rb").write_text("puts 1", encoding="utf-8")
    names = {"script": "program.mjs", "program": "program.rb"}
    assert main([argument.format(**names) for argument in arguments]) == status
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["run"],
        ["walk"],
        ["run", "x", "--floor", "none"],
        ["run", "x", "--token", "hunter2"],
        ["run", "x", "--token=hunter2"],
    ],
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 64
    shown = capsys.readouterr().err
    assert "usage: plimsoll" in shown
    assert "hunter2" not in shown


def test_a_token_file(script: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n", encoding="utf-8")
    with serving(says()) as stub:
        assert main(["run", script, "--url", stub.url, "--token-file", str(tmp_path / "token")]) == 0
    assert stub.seen[0].header("authorization") == "Bearer from-a-file"


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"plimsoll {plimsoll.__version__}\n"


def test_describe(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(sends(lambda seen: answer(seen, honest.description()))) as stub:
        assert main(["describe", "--url", stub.url]) == 0
        assert "execution on" in capsys.readouterr().out
        assert main(["describe", "--url", stub.url, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["protocol"] == 4


def test_a_grant_is_named_and_those_there_are_are_listed(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    grant = {"name": "hr-read", "description": "Reads.\nMore.", "routes": ["GET /v1/a", "GET /v1/b"]}
    more = {"max_calls": 50, "catalog": "", "preamble": {}}
    with serving(says()) as stub:
        assert main(["run", script, "--grant", "hr-read", "--url", stub.url]) == 0
        assert main(["run", script, "--grant", "", "--url", stub.url]) == 64
    assert [json.loads(each.body)["payload"]["grant_profile"] for each in stub.seen] == ["hr-read"]
    capsys.readouterr()
    with serving(sends(lambda seen: answer(seen, {"grants": [grant | more]}))) as stub:
        assert main(["grants", "--url", stub.url]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert main(["grants", "--url", stub.url, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"grants": [grant | more]}
    assert lines == ["hr-read      50 calls  Reads.", "         GET /v1/a", "         GET /v1/b"]
    with serving(sends(lambda seen: answer(seen, {"grants": []}))) as stub:
        assert main(["grants", "--url", stub.url]) == 0
    assert capsys.readouterr().out == "no grant profile is for this caller\n"
    assert main(["grants", "--url", "http://127.0.0.1:1"]) == 69


def on_a_terminal(*arguments: str) -> bytes:
    """Everything a terminal gets from the command."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([*PROGRAM, *arguments], stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:  # the other side is closed
            pass
        finally:
            os.close(ours)
        process.wait(60)
    return shown


def test_a_terminal_is_shown_escapes_and_a_progress_line(script: str) -> None:
    def make(seen: Seen) -> bytes:
        return answer(seen, seen.honest(stdout=b"\x1b]0;owned\x07\r"))

    with serving(sends(make)) as stub:
        shown = on_a_terminal("run", script, "--url", stub.url)
    assert b"\\x1b]0;owned\\x07\\x0d\r\n" in shown
    assert b"running " in shown
    assert shown.replace(b"\r\x1b[K", b"").count(b"\x1b") == 0
