"""`plimsoll specgen`: files, report, exit status; it asks no service and replaces nothing unless told to."""

import io
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli import main, specs
from plimsoll.specgen import DOCUMENT_BYTES
from tests.support.openapi_documents import document, one, parameter

NAMES = {"grant.toml", "catalog.json", "preamble.js", "preamble.py", "description.md"}


@pytest.fixture(autouse=True)
def nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an address nor a token is needed, or looked at."""
    monkeypatch.setenv("PLIMSOLL_URL", "no address at all")
    monkeypatch.delenv("PLIMSOLL_TOKEN", raising=False)


def stored(folder: Path, whole: Any) -> str:
    path = folder / "API.json"
    path.write_text(json.dumps(whole), encoding="utf-8")
    return str(path)


LACKING = document({"/a": {"get": {}}, "/a/{b}.c": {"get": {}}})


def test_the_allow_list_goes_to_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["specgen", stored(tmp_path, one()), "--name", "hr-read"]) == 0
    said = capsys.readouterr()
    profile = {"origin": "https://hr.example.com", "allow": ["GET /v1/employees"]}
    assert tomllib.loads(said.out) == {"hr-read": profile}
    assert said.err == "specgen: functions: 1, routes: 1, nothing left out\n"


def test_what_is_left_out_is_said_and_makes_the_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    assert (
        main(["specgen", stored(tmp_path, LACKING), "-o", str(tmp_path / "out"), "--report", str(report)])
        == 1
    )
    said = capsys.readouterr()
    assert said.out == ""
    first, last = said.err.splitlines()
    assert first.startswith("left out: #/paths/~1a~1{b}.c/get: ")
    assert last == "specgen: functions: 1, routes: 1, left out: 1"
    assert {path.name for path in (tmp_path / "out").iterdir()} == NAMES
    told = json.loads(report.read_text(encoding="utf-8"))
    assert (told["complete"], [each["rule"] for each in told["findings"]]) == (False, ["path"])


def test_json_has_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(LACKING).encode())))
    assert main(["specgen", "-", "--json", "--only", "GET /a"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["complete"], found["findings"], set(found["files"])) == (True, [], NAMES)


def test_a_report_is_written_when_nothing_is_left_out(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert main(["specgen", stored(tmp_path, one()), "--report", str(report)]) == 0
    assert json.loads(report.read_text(encoding="utf-8")) == {"complete": True, "findings": []}


def test_nothing_is_replaced_unless_told_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = stored(tmp_path, one()), tmp_path / "out"
    out.mkdir()
    (out / "preamble.py").write_text("mine")
    report = tmp_path / "report.json"
    arguments = ["specgen", path, "-o", str(out), "--report", str(report)]
    assert main(arguments) == 73
    assert "preamble.py: is there already (--force replaces it)" in capsys.readouterr().err
    assert [each.read_text() for each in out.iterdir()] == ["mine"]
    assert not report.exists()
    assert main([*arguments, "--force"]) == 0
    assert {each.name for each in out.iterdir()} == NAMES


BAD: list[tuple[str, bytes, str]] = [
    (
        "YAML",
        b"openapi: 3.1.0\n",
        "#: must be JSON: line 1 column 1 (a document in YAML is to be converted first)",
    ),
    ("a key twice", b'{"openapi": "3.1.0", "openapi": "3.1.0"}', "#: must hold no duplicate key"),
    ("too deep", b"[" * 101 + b"]" * 101, "#: must not be nested deeper than 100"),
    ("much too deep", b"[" * 1_000_000, "#: must be JSON"),
    ("not UTF-8", b'{"a": "\xff"}', "#: must be UTF-8"),
    ("a lone surrogate", b'{"a": "\\ud800"}', "#: must hold no lone surrogate"),
    ("no rule kept", b'{"openapi": "3.1.0", "info": []}', "#/info: must be an object"),
    ("too long", b" " * (DOCUMENT_BYTES + 1), f"#: must be at most {DOCUMENT_BYTES} bytes"),
]


@pytest.mark.parametrize(("data", "said"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_document_that_breaks_a_rule_is_refused_with_its_place(
    data: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "API.json", tmp_path / "out"
    path.write_bytes(data)
    assert main(["specgen", str(path), "-o", str(out)]) == 65
    assert f"specgen: {said}" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--name", "HR"],
        ["--name", ""],
        ["--server", "http://hr.example.com"],
        ["--server", "/x"],
        ["--serv", "x"],
        ["--url", "x"],
    ],
)
def test_a_wrong_option_is_refused(arguments: list[str], tmp_path: Path) -> None:
    command = ["specgen", stored(tmp_path, one()), *arguments]
    try:
        status: Any = main(command)
    except SystemExit as ended:
        status = ended.code
    assert status == 64


def test_a_file_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "none\x1b[2J.json")
    assert main(["specgen", path]) == 66
    said = capsys.readouterr().err
    assert "No such file" in said
    assert "\x1b" not in said


def test_an_endless_file_is_not_read_to_its_end() -> None:
    assert main(["specgen", "/dev/zero"]) == 65


def test_many_findings_are_cut_on_a_terminal_and_whole_in_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd: Any = {f"y{n}": 0 for n in range(200)}
    whole = one("/a", parameters=[parameter("x\x1b[2J", "cookie")], **odd)
    report = tmp_path / "report.json"
    assert main(["specgen", stored(tmp_path, whole), "--report", str(report)]) == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == specs.SHOWN + 2
    assert "and 101 more, which --report has" in said
    assert "\x1b" not in said
    assert len(json.loads(report.read_text(encoding="utf-8"))["findings"]) == 201
