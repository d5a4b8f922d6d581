"""Projects: what is worth sending (checks 5 and 6), what an answer must say (24 to 33), and what a stream may (S18)."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import plimsoll
from plimsoll.client import errors
from plimsoll.client.answers import BODY_LIMIT
from plimsoll.client.core import project
from plimsoll.client.results import ProjectRun
from plimsoll.client.streaming import Accepted, Output, StepEnded
from plimsoll.contract import bounds
from plimsoll.contract.refusals import Reason
from plimsoll.contract.requests import File, Project, RunRequest
from plimsoll.contract.rest import RunBody
from plimsoll.contract.results import Artifact, Outcome, ProjectResult, StepResult
from plimsoll.records.rest import request_from_body
from tests.unit.plimsoll import honest
from tests.unit.plimsoll.client.exchanges import core, play, raises, received

FILES: dict[str, str | bytes | Path] = {
    "main.py": "print(6 * 7)\r\n",
    "data/raw.bin": b"\x00\xff",
    "\N{SHIP}": "",
}
STEPS = ["one", "two"]
ASKED = Project(
    (File("main.py", b"print(6 * 7)\r\n"), File("data/raw.bin", b"\x00\xff"), File("\N{SHIP}", b"")),
    ("one", "two"),
    ("out.txt", "more/out.bin"),
)
ARTIFACTS = ["out.txt", "more/out.bin"]
REQUEST = RunRequest(ASKED)
ONE = StepResult("one", stdout=b"1\n", stderr=b"\xff", duration_ms=4)
TWO = StepResult("two", stdout=b"2\n", stdout_truncated=True)
RESULT = ProjectResult(
    Outcome.COMPLETED,
    steps=(ONE, TWO),
    artifacts=(Artifact("out.txt", b"42\n"), Artifact("more/out.bin", bytes(range(256)))),
)
ANSWER = honest.project_answer(REQUEST, RESULT)


def asked(**how: Any) -> Any:
    return project(FILES, STEPS, ARTIFACTS, **how)


# --- before sending ------------------------------------------------------------------------------------------------------


def test_what_is_sent_is_read_by_the_service_as_what_we_digest(tmp_path: Path) -> None:
    local = tmp_path / "raw"
    local.write_bytes(b"\x00\xff")
    for files in (FILES, FILES | {"data/raw.bin": local}):
        body = core().run(project(files, STEPS, tuple(ARTIFACTS))).body
        assert request_from_body(RunBody.model_validate_json(body)) == REQUEST


def test_the_largest_project_fits_into_the_largest_body() -> None:
    files: dict[str, str | bytes | Path] = {
        f"{number:03}{chr(0xE9) * 510}": b"\x01" * (bounds.FILES_BYTES // 200) for number in range(200)
    }
    body = core().run(project(files, ["\x01" * bounds.STEP_BYTES] * 20, list(files)[:100])).body
    assert len(body) < bounds.BODY_BYTES


BAD_PATHS = [
    "",
    "/a",
    "a//b",
    "a/",
    "./a",
    "a/../b",
    "..",
    "a\\b",
    "a\nb",
    "a\x7f",
    "\ud800",
    "x" * 1025,
    "a\0",
]
WRONG: dict[str, tuple[tuple[Any, Any, Any], str]] = {
    **{f"file at {path[:9]!r}": (({"ok": "", path: ""}, ["s"], ()), "files.1") for path in BAD_PATHS},
    **{f"artifact at {path[:9]!r}": (({}, ["s"], ["ok", path]), "artifacts.1") for path in BAD_PATHS},
    "no mapping": (([("a", "b")], ["s"], ()), "files"),
    "no files at all": ((None, ["s"], ()), "files"),
    "a path that is no text": (({5: "x"}, ["s"], ()), "files.0"),
    "content that is no text": (({"a": 5}, ["s"], ()), "files.0"),
    "a lone surrogate": (({"a": "\ud800"}, ["s"], ()), "files.0"),
    "a file that is not there": (({"a": Path("/nowhere/at/all")}, ["s"], ()), "files.0"),
    "a path with a NUL": (({"a": Path("a\0b")}, ["s"], ()), "files.0"),
    "a folder": (({"a": Path("/")}, ["s"], ()), "files.0"),
    "a device": (({"a": Path("/dev/zero")}, ["s"], ()), "files.0"),
    "201 files": (({str(number): "" for number in range(201)}, ["s"], ()), "files"),
    "more than 4 MiB": (({"a": b"x" * bounds.FILES_BYTES, "b": b"x"}, ["s"], ()), "files"),
    "no steps": (({}, [], ()), "steps"),
    "21 steps": (({}, ["s"] * 21, ()), "steps"),
    "one text instead of steps": (({}, "ls", ()), "steps"),
    "a step that is no text": (({}, [b"ls"], ()), "steps"),
    "an empty step": (({}, ["s", ""], ()), "steps.1"),
    "a step with a NUL": (({}, ["a\0"], ()), "steps.0"),
    "a long step": (({}, ["x" * (bounds.STEP_BYTES + 1)], ()), "steps.0"),
    "101 artifacts": (({}, ["s"], [str(number) for number in range(101)]), "artifacts"),
    "an artifact twice": (({}, ["s"], ["a", "a"]), "artifacts"),
    "one text instead of artifacts": (({}, ["s"], "out.txt"), "artifacts"),
    "None instead of artifacts": (({}, ["s"], None), "artifacts"),
}


@pytest.mark.parametrize("name", WRONG)
def test_5_and_6_a_broken_rule_is_named_and_nothing_is_sent(name: str) -> None:
    given, field = WRONG[name]
    with plimsoll.Client("http://127.0.0.1:1", "") as client:
        for method in (client.run_project, client.start_project, client.stream_project):
            with pytest.raises(errors.InvalidRequest) as caught:
                method(*given)
            assert field in [fault.field for fault in caught.value.faults]
            assert caught.value.not_dispatched is Reason.REQUEST


def test_5_a_fifo_is_refused_and_not_waited_on(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(errors.InvalidRequest, match="regular"):
        project({"a": tmp_path / "fifo"}, ["s"], ())


def test_several_faults_are_named_together_with_those_beside() -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        project({"/a": ""}, [], ["../x"], floor="strong")
    assert [fault.field for fault in caught.value.faults] == ["files.0", "steps", "artifacts.0", "floor"]


def test_exactly_the_bounds_are_fine() -> None:
    files: dict[str, str | bytes | Path] = {"a": b"x" * bounds.FILES_BYTES, "x" * 1024: ""}
    assert project(files, ["x" * bounds.STEP_BYTES] * 20, [str(number) for number in range(100)]).key == ""


def test_nothing_of_the_project_is_in_a_repr() -> None:
    assert "6 * 7" not in repr(asked())
    assert "42" not in repr(play(core().run(asked()), ANSWER))


# --- answers -------------------------------------------------------------------------------------------------------------


def test_an_honest_answer_is_the_project_it_states() -> None:
    run = play(core().run(asked()), ANSWER)
    assert isinstance(run, ProjectRun)
    assert (run.outcome, run.steps, run.artifacts) == (Outcome.COMPLETED, RESULT.steps, RESULT.artifacts)
    assert (run.ok, run.exit_code, run.text, run.error_text) == (
        True,
        0,
        "1\n2\n",
        "\N{REPLACEMENT CHARACTER}",
    )
    assert (run.artifact("out.txt"), run.artifact("more/out.bin")) == (b"42\n", bytes(range(256)))
    with pytest.raises(KeyError):
        run.artifact("absent")


ENDS: dict[str, tuple[ProjectResult, int]] = {
    "a step failed": (replace(RESULT, steps=(replace(ONE, exit_code=3),)), 3),
    "the deadline": (replace(RESULT, outcome=Outcome.TIMED_OUT, steps=(replace(ONE, timed_out=True),)), 1),
    "the runner failed between steps": (replace(RESULT, outcome=Outcome.RUNNER_FAILED, steps=(ONE,)), 1),
    "no step was begun": (ProjectResult(Outcome.SETUP_FAILED), 1),
    "the agent broke off": (ProjectResult(Outcome.PROTOCOL_ERROR, "it said nonsense"), 1),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_project_that_did_not_go_well_is_a_result(name: str) -> None:
    result, exit_code = ENDS[name]
    run = play(core().run(asked()), honest.project_answer(REQUEST, result))
    assert (run.ok, run.exit_code, run.outcome) == (False, exit_code, result.outcome)


def changed(**result: Any) -> dict[str, Any]:
    return ANSWER | {"result": ANSWER["result"] | result}


def step(number: int, **changes: Any) -> dict[str, Any]:
    steps = list(ANSWER["result"]["steps"])
    steps[number] = steps[number] | changes
    return changed(steps=steps)


def artifact(number: int, **changes: Any) -> dict[str, Any]:
    artifacts = list(ANSWER["result"]["artifacts"])
    artifacts[number] = artifacts[number] | changes
    return changed(artifacts=artifacts)


FIRST, SECOND = ANSWER["result"]["steps"]
TEXT, BINARY = ANSWER["result"]["artifacts"]
TAMPERED: dict[str, dict[str, Any]] = {
    "outcome": changed(outcome="timed_out"),
    "words about the outcome": changed(outcome_detail="fine"),
    "artifacts said to be cut": changed(artifacts_truncated=True),
    "output of a step": step(0, stdout="7\n"),
    "errors of a step": step(0, stderr="/g=="),
    "exit code of a step": step(1, exit_code=1),
    "deadline of a step": step(1, timed_out=True),
    "cut of a step": step(1, stdout_truncated=False),
    "the other cut of a step": step(0, stderr_truncated=True),
    "command of a step": step(0, command="other"),
    "steps swapped": changed(steps=[SECOND, FIRST]),
    "a step dropped": changed(steps=[FIRST]),
    "a step more": changed(steps=[FIRST, SECOND, SECOND]),
    "a byte of an artifact": artifact(0, content="43\n"),
    "the path of an artifact": artifact(0, path="other.txt"),
    "an artifact dropped": changed(artifacts=[TEXT]),
    "artifacts swapped": changed(artifacts=[BINARY, TEXT]),
    "an artifact more": changed(artifacts=[TEXT, BINARY, TEXT | {"path": "third"}]),
    "contents exchanged": changed(
        artifacts=[TEXT | {"path": BINARY["path"]}, BINARY | {"path": TEXT["path"]}]
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_27_whatever_is_changed_no_longer_is_the_records(name: str) -> None:
    prepared = core().run(asked())
    with raises(prepared, errors.RecordMismatch) as caught:
        play(prepared, TAMPERED[name])
    assert caught[0].fields == ("result_sha256",)
    assert caught[0].not_dispatched is None
    assert isinstance(caught[0].result, ProjectRun)


def test_what_no_digest_covers_may_differ() -> None:
    assert play(core().run(asked()), step(0, duration_ms=9)).ok


def test_26_a_record_of_another_project() -> None:
    for other in (
        replace(ASKED, steps=("one", "three")),
        replace(ASKED, artifacts=()),
        replace(ASKED, files=ASKED.files[::-1]),
    ):
        prepared = core().run(asked())
        with raises(prepared, errors.RecordMismatch) as caught:
            play(prepared, honest.project_answer(RunRequest(other), RESULT))
        assert "request_sha256" in caught[0].fields


LIES: dict[str, ProjectResult] = {
    "other commands": replace(RESULT, steps=(ONE, replace(TWO, command="three"))),
    "commands in another order": replace(RESULT, steps=(TWO, ONE)),
    "more steps than asked": replace(RESULT, steps=(ONE, TWO, TWO)),
    "a step after one that failed": replace(RESULT, steps=(replace(ONE, exit_code=1), TWO)),
    "a step after one at its deadline": replace(RESULT, steps=(replace(ONE, timed_out=True), TWO)),
    "completed without a step": replace(RESULT, steps=(ONE,)),
    "steps although the setup failed": replace(RESULT, outcome=Outcome.SETUP_FAILED),
    "an artifact nobody asked for": replace(RESULT, artifacts=(Artifact("/etc/passwd", b""),)),
    "an artifact twice": replace(RESULT, artifacts=(Artifact("out.txt", b"1"), Artifact("out.txt", b"2"))),
    "artifacts over their bound": replace(
        RESULT, artifacts=(Artifact("out.txt", b"x" * bounds.ARTIFACTS_BYTES), Artifact("more/out.bin", b"x"))
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_32_a_consistent_record_of_what_was_never_asked_for_is_refused(name: str) -> None:
    prepared = core().run(asked())
    with raises(prepared, errors.ResultMismatch) as caught:
        play(prepared, honest.project_answer(REQUEST, LIES[name]))
    assert caught[0].not_dispatched is None
    assert caught[0].result is not None


def test_32_a_snippets_result_is_no_projects() -> None:
    prepared = core().run(asked())
    with raises(prepared, errors.ResultKindMismatch):
        play(prepared, honest.run_answer())


MALFORMED: dict[str, dict[str, Any]] = {
    "an outcome nobody knows": changed(outcome="splendid"),
    "no outcome": changed(outcome="unspecified"),
    "a step without command": changed(
        steps=[{name: value for name, value in FIRST.items() if name != "command"}]
    ),
    "an exit code in quotes": step(0, exit_code="0"),
    "base64 in two ways": artifact(1, content="AB==", content_encoding="base64"),
    "no base64": artifact(1, content="?", content_encoding="base64"),
    "an encoding nobody knows": artifact(0, content_encoding="latin-1"),
    "steps that are no list": changed(steps={}),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_20_what_has_another_shape_is_malformed(name: str) -> None:
    prepared = core().run(asked())
    with raises(prepared, errors.MalformedResponse):
        play(prepared, MALFORMED[name])


def test_an_answer_without_record_comes_along_unproven() -> None:
    prepared = core().run(asked())
    with raises(prepared, errors.NoRecord) as caught:
        play(prepared, ANSWER | {"record": None})
    assert isinstance(caught[0].result, ProjectRun)
    assert caught[0].result.record.version == 0


# --- streams -------------------------------------------------------------------------------------------------------------

ACCEPTED = honest.accepted(ANSWER)
OUT0, ERR0, END0 = (
    honest.chunk(b"1\n", step=0),
    honest.chunk(b"\xff", "stderr", step=0),
    honest.step_end(0, ONE),
)
OUT1, END1 = honest.chunk(b"2\n", step=1), honest.step_end(1, TWO)
LAST = honest.event("result", ANSWER)
WHOLE = [ACCEPTED, OUT0, ERR0, END0, OUT1, END1, LAST]


def read(
    parts: Iterable[bytes], **how: Any
) -> tuple[list[Any], ProjectRun | None, errors.PlimsollError | None]:
    streaming = core().stream(asked(**how))
    reading, said = streaming.reading, []
    head = received(streaming.prepared, b"").head
    try:
        for part in parts:
            for event in reading.feed(part):
                said.append(event)  # noqa: PERF402 - what came before an error counts
        said += reading.end(head, honest.NOW, honest.NOW + 5)
    except errors.PlimsollError as error:
        return said, reading.run, error
    return said, reading.run, None


def ended(number: int, of: StepResult) -> StepEnded:
    return StepEnded(
        number,
        of.command,
        of.exit_code,
        of.timed_out,
        of.stdout_truncated,
        of.stderr_truncated,
        of.duration_ms,
    )


SAID = [
    Output("stdout", b"1\n", 0),
    Output("stderr", b"\xff", 0),
    ended(0, ONE),
    Output("stdout", b"2\n", 1),
    ended(1, TWO),
]


def test_an_honest_stream_is_its_steps_and_then_the_run() -> None:
    said, run, error = read(WHOLE)
    assert error is None
    assert isinstance(said[0], Accepted)
    assert said[1:] == SAID
    assert run is not None
    assert run.steps == RESULT.steps


def test_a_stored_project_is_given_as_if_it_had_been_streamed_under_a_key_only() -> None:
    said, run, error = read([ACCEPTED, LAST], idempotency_key="k")
    assert (said[1:], error) == (SAID, None)
    assert run is not None
    assert type(read([ACCEPTED, LAST])[2]) is errors.RecordMismatch


STREAMS: dict[str, tuple[list[bytes], type[errors.PlimsollError]]] = {
    "altered output": ([ACCEPTED, honest.chunk(b"7\n", step=0), *WHOLE[2:]], errors.RecordMismatch),
    "dropped output": ([ACCEPTED, ERR0, *WHOLE[3:]], errors.RecordMismatch),
    "output of a later step": ([ACCEPTED, OUT1, *WHOLE[2:]], errors.MalformedResponse),
    "output of an earlier step": ([*WHOLE[:4], OUT0, *WHOLE[4:]], errors.MalformedResponse),
    "output without a step": ([ACCEPTED, honest.chunk(b"1\n"), *WHOLE[2:]], errors.MalformedResponse),
    "output after the last step": ([*WHOLE[:6], honest.chunk(b"x", step=2), LAST], errors.MalformedResponse),
    "a step dropped": ([*WHOLE[:5], LAST], errors.RecordMismatch),
    "steps swapped": ([ACCEPTED, OUT0, ERR0, END1, OUT1, END0, LAST], errors.MalformedResponse),
    "a step twice": ([*WHOLE[:4], END0, *WHOLE[4:]], errors.MalformedResponse),
    "more steps than asked": ([*WHOLE[:6], honest.step_end(2, TWO), LAST], errors.MalformedResponse),
    "another exit code": (
        [*WHOLE[:3], honest.step_end(0, replace(ONE, exit_code=1)), *WHOLE[4:]],
        errors.RecordMismatch,
    ),
    "a step of another shape": ([*WHOLE[:3], honest.event("step", {"step": 0})], errors.MalformedResponse),
    "more output than a step has": (
        [ACCEPTED, *[honest.chunk(b"x" * 60_000, step=0)] * 2],
        errors.MalformedResponse,
    ),
    "only the result's artifact altered": (
        [*WHOLE[:6], honest.event("result", TAMPERED["a byte of an artifact"])],
        errors.RecordMismatch,
    ),
    "cut before the result": (WHOLE[:6], errors.StreamCut),
    "a line over 32 MiB": ([ACCEPTED, b"data: " + b"x" * (BODY_LIMIT + 1)], errors.MalformedResponse),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_is_not_exactly_right_is_refused_unmarked(name: str) -> None:
    parts, kind = STREAMS[name]
    _, run, error = read(parts)
    assert type(error) is kind
    assert (error.not_dispatched, run) == (None, None)


def test_each_step_has_its_own_cap() -> None:
    full = b"x" * bounds.OUTPUT_CAP_BYTES
    steps = tuple(StepResult(command, stdout=full) for command in STEPS)
    answer = honest.project_answer(REQUEST, replace(RESULT, steps=steps))
    parts = [honest.accepted(answer)]
    for number, each in enumerate(steps):
        parts += [honest.chunk(full, step=number), honest.step_end(number, each)]
    assert read([*parts, honest.event("result", answer)])[2] is None


def test_a_snippets_stream_knows_no_steps() -> None:
    from plimsoll.client.core import snippet  # noqa: PLC0415 - one use
    from tests.unit.plimsoll.client.exchanges import CODE  # noqa: PLC0415 - one use

    reading = core().stream(snippet(CODE)).reading
    with pytest.raises(errors.MalformedResponse):
        list(reading.feed(honest.accepted(honest.run_answer()) + END0))
