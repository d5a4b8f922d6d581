"""`python -m plimsoll.records --request FILE --answer FILE`: an honest answer holds, and whatever differs is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.contract.rest import RunBody
from plimsoll.records.__main__ import main
from plimsoll.records.rest import request_from_body
from tests.unit.plimsoll import honest

BODY: dict[str, Any] = {
    "payload": {"kind": "javascript", "code": "console.log(6 * 7)"},
    "minimum_isolation": "process",
    "trace_id": "t-1",
}
ANSWER = honest.run_answer(request_from_body(RunBody.model_validate(BODY)), stdout=b"\xff42\n")


def run(folder: Path, body: object, answer: object) -> int:
    request, came = folder / "request.json", folder / "answer.json"
    for file, value in ((request, body), (came, answer)):
        file.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return main(["prog", "--request", str(request), "--answer", str(came)])


def test_an_honest_answer_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, BODY, ANSWER) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "request_sha256: holds",
        "result_sha256: holds",
        "record_sha256: holds",
        "software_rule_id: holds",
        "provider: holds",
        "isolation: holds",
        "environment: holds",
        "software_identity: holds",
        "instance: holds",
        "evidence_sha256: not checked, it is in no record",
    ]


def test_so_does_the_run_when_it_is_asked_for_later(tmp_path: Path) -> None:
    view = honest.view(ANSWER) | {"result": ANSWER["result"]}
    assert "recorded" not in view
    assert run(tmp_path, BODY, view) == 0


RULE = {"mode": "exact", "identities": ["another"]}


@pytest.mark.parametrize(
    ("body", "answer", "differing"),
    [
        (BODY | {"timeout_ms": 30000}, ANSWER, ["request_sha256"]),
        (BODY, ANSWER | {"result": ANSWER["result"] | {"exit_code": 1}}, ["result_sha256"]),
        (BODY, ANSWER | {"record": ANSWER["record"] | {"policy": "x"}}, ["record_sha256"]),
        (BODY, ANSWER | {"provider": "docker"}, ["provider"]),
        (BODY, ANSWER | {"instance": "docker:1"}, ["instance"]),
        (
            BODY | {"software_rule": RULE},
            ANSWER,
            ["request_sha256", "software_rule_id", "software_identity"],
        ),
        (BODY, honest.resealed(ANSWER, sequence=3), ["sequence"]),
        (BODY, honest.resealed(ANSWER, version=3), ["version"]),
    ],
)
def test_what_differs_is_named(
    body: dict[str, Any],
    answer: dict[str, Any],
    differing: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(tmp_path, body, answer) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines if ": differs: " in line] == differing


def test_another_evidence_is_not_seen_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, BODY, ANSWER | {"evidence_sha256": "0" * 64}) == 0
    assert "evidence_sha256: not checked" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "answer", "place"),
    [
        (b"{", ANSWER, "the request must be JSON"),
        ([], ANSWER, "the request must be a JSON object"),
        (BODY | {"later": True}, ANSWER, "the request: later: "),
        (BODY, b"[]", "the answer must be a JSON object"),
        (BODY, honest.problem("capacity", 429, "capacity"), "the answer: id: "),
        (BODY, ANSWER | {"record": None}, "the answer: record: "),
        (
            BODY,
            ANSWER | {"result": ANSWER["result"] | {"stdout": "*", "stdout_encoding": "base64"}},
            "the answer: result: a stream or file must be base64",
        ),
    ],
)
def test_what_cannot_be_used_exits_2_and_names_the_place(
    body: object, answer: object, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, body, answer) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert place in captured.err


def test_the_help_says_what_is_checked_and_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["prog", "--help"])
    assert caught.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for word in (
        "usage: python -m plimsoll.records",
        "--request FILE",
        "--answer FILE",
        "evidence_sha256",
        "Exit status",
    ):
        assert word in shown


@pytest.mark.parametrize(
    "arguments",
    [["--request", "r.json"], ["--answer", "a.json"], ["v.json", "--request", "r.json", "--answer", "a"]],
)
def test_half_a_pair_is_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prog", *arguments]) == 2
    assert "usage" in capsys.readouterr().err


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    absent = str(tmp_path / "absent.json")
    assert main(["prog", "--request", absent, "--answer", absent]) == 2
    assert absent in capsys.readouterr().err
