"""The golden vectors hold, and the command that recomputes them says so or names what differs."""

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.records import vectors
from plimsoll.records.__main__ import main

VECTORS = Path(__file__).resolve().parents[3] / "vectors"
GOLDEN = VECTORS / "records.json"
REST = VECTORS / "rest-requests.json"


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        (
            GOLDEN,
            {
                "requests": 11,
                "results": 9,
                "records": 7,
                "software_rules": 4,
                "session_fingerprints": 2,
                "owner_digests": 3,
            },
        ),
        (REST, {"rest_requests": 16, "rest_results": 14}),
    ],
    ids=["golden", "rest"],
)
def test_every_vector_is_recomputed(path: Path, counts: dict[str, int]) -> None:
    reports = vectors.recompute(vectors.read(path.read_bytes()))
    assert {report.section: report.count for report in reports} == counts
    assert [report.differing for report in reports if report.differing] == []


def test_a_request_has_one_digest_by_rest_and_by_the_wire_api() -> None:
    golden, rest = json.loads(GOLDEN.read_bytes()), json.loads(REST.read_bytes())
    assert rest["rest_requests"][0]["sha256"] == golden["requests"][0]["sha256"]
    assert rest["rest_requests"][2]["sha256"] == golden["requests"][1]["sha256"]


def run(tmp_path: Path, content: bytes) -> int:
    file = tmp_path / "vectors.json"
    file.write_bytes(content)
    return main(["prog", str(file)])


def test_the_command_prints_a_count_per_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prog", str(GOLDEN)]) == 0
    assert "records: 7 checked, 0 differ\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("requests", "sha256"),
        ("results", "sha256"),
        ("records", "sha256"),
        ("software_rules", "rule_id"),
        ("session_fingerprints", "fingerprint"),
        ("owner_digests", "digest"),
    ],
)
def test_the_command_names_what_differs(
    section: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = json.loads(GOLDEN.read_bytes())
    golden[section][1][key] = "0" * 64
    assert run(tmp_path, json.dumps(golden).encode()) == 1
    out = capsys.readouterr().out
    assert f"{section}.1" in out
    assert out.count("recomputed") == 1


@pytest.mark.parametrize("content", [b"{}", b'{"requests": []}', b'{"about": "nothing"}'])
def test_sections_may_be_empty_or_missing(content: bytes, tmp_path: Path) -> None:
    assert run(tmp_path, content) == 0


def request(**fields: Any) -> bytes:
    return json.dumps({"requests": [{"request": {"protocol": 4, **fields}, "sha256": ""}]}).encode()


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", "must be JSON"),
        (b"[]", "the file"),
        (b"\xff", "must be UTF-8"),
        (b'{"surprises": []}', "surprises"),
        (b'{"about": "a", "about": "b"}', "duplicate key"),
        (b'{"requests": [{"sha256": ""}]}', "requests.0.request"),
        (b'{"requests": [{"request": {"javascript": {}}}]}', "requests.0.sha256"),
        (request(), "requests.0.request"),
        (request(javascript={}, cell={}), "requests.0.request"),
        (request(javascript={"code": 1}), "requests.0.request.javascript.code"),
        (request(javascript={"grantProfile": "", "grant_profile": ""}), "requests.0.request.javascript"),
        (request(javascript={}, minimumIsolation="strong"), "requests.0.request"),
        (request(javascript={}, softwareRule={"identities": ["a"]}), "requests.0.request.softwareRule.mode"),
        (request(javascript={}, timeoutMs="1.5"), "requests.0.request.timeoutMs"),
        (request(javascript={}, later=True), "requests.0.request.later"),
        (
            b'{"results": [{"response": {"javascript": {"stdout": "*"}}, "sha256": ""}]}',
            "results.0.response.javascript.stdout",
        ),
        (
            b'{"results": [{"response": {"project": {"outcome": "SOMETHING"}}, "sha256": ""}]}',
            "results.0.response.project.outcome",
        ),
        (b'{"records": [{"record": {"version": 9}, "sha256": ""}]}', "records.0"),
    ],
)
def test_a_malformed_file_exits_2_and_names_the_place(
    content: bytes, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, content) == 2
    captured = capsys.readouterr()
    assert place in captured.err
    assert captured.out == ""


def test_a_missing_file_and_missing_arguments_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prog", str(tmp_path / "absent.json")]) == 2
    assert main(["prog"]) == 2
    assert "usage" in capsys.readouterr().err


def digests(*requests: dict[str, Any]) -> list[str]:
    items = [{"request": {"protocol": 4, **fields}, "sha256": ""} for fields in requests]
    (report,) = vectors.recompute(vectors.read(json.dumps({"requests": items}).encode()))
    return [line.rpartition(" ")[2] for line in report.differing]


def test_spellings_nulls_and_number_forms_do_not_change_a_digest() -> None:
    first, *others = digests(
        {"timeoutMs": 5, "javascript": {"code": "1"}},
        {"timeoutMs": "5", "javascript": {"code": "1"}},
        {"timeout_ms": 5, "javascript": {"code": "1", "grant_profile": ""}},
        {"javascript": {"grantProfile": None, "code": "1"}, "timeoutMs": 5, "cell": None, "traceId": "t"},
    )
    assert set(others) == {first}


def test_negative_zero_keeps_its_sign_also_without_a_point() -> None:
    body = b'{"requests": [{"request": {"module": {"model": "m", "step": %s}}, "sha256": ""}]}'
    lines = [vectors.recompute(vectors.read(body % form))[0].differing for form in (b"-0", b"-0.0", b"0")]
    assert lines[0] == lines[1] != lines[2]
