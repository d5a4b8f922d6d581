"""What a container's agent may say and when: each rule of providers/docker/frames.py with the words that break it."""

from typing import Any

import pytest

from plimsoll.contract import frames
from plimsoll.contract.bounds import ARTIFACTS_BYTES
from plimsoll.contract.grants import MESSAGE_BYTES
from plimsoll.contract.requests import File, JavaScript, Project, Python
from plimsoll.contract.results import Artifact, Outcome
from providers.docker import frames as module
from providers.docker.agent import wire
from providers.docker.frames import (
    ANSWER_BYTES,
    CHUNK,
    MAX_FRAME,
    UNANSWERED,
    BadTalk,
    Called,
    Event,
    Output,
    Pong,
    ProjectEnded,
    Ready,
    Runnable,
    SnippetEnded,
    StepEnded,
    Talk,
)

PROJECT = Project(files=(File("in", b"1"),), steps=("a", "b"), artifacts=("x", "y"))
DONE = {"t": "result", "outcome": "completed", "detail": "", "truncated": False}
RESULT = {"t": "result", "exit": 0}
Said = tuple[dict[str, Any], bytes]


def out(step: int = 0, stream: str = "stdout", body: bytes = b"hi") -> Said:
    return {"t": "out", "step": step, "stream": stream}, body


def step(number: int, exit_code: int = 0) -> Said:
    return {"t": "step", "step": number, "exit": exit_code}, b""


def artifact(path: str, size: int, body: bytes) -> Said:
    return {"t": "artifact", "path": path, "size": size}, body


def talk(payload: Runnable | None = None, **settings: int) -> Talk:
    """One whose agent is ready, running `payload`."""
    made = Talk(**settings)
    assert list(made.feed(wire.encode({"t": "ready", "warm": ["python"]}))) == [Ready(("python",))]
    if payload is not None:
        made.begin(payload)
    return made


def hear(made: Talk, *said: Said) -> list[Event]:
    return list(made.feed(b"".join(wire.encode(*one) for one in said)))


def test_a_snippet_from_its_output_to_its_result() -> None:
    made = talk(Python("print(1)"))
    assert hear(made, out(), out(stream="stderr", body=b"!"), ({"t": "result", "exit": 3}, b"")) == [
        Output(0, "stdout", b"hi"),
        Output(0, "stderr", b"!"),
        SnippetEnded(3),
    ]
    assert made.over


def test_a_project_with_steps_and_artifacts() -> None:
    made = talk(PROJECT)
    said = [out(), step(0), out(1), step(1), artifact("x", 3, b"ab"), artifact("x", 3, b"c")]
    assert hear(made, *said, artifact("y", 0, b""), (DONE, b"")) == [
        Output(0, "stdout", b"hi"),
        StepEnded(0, 0),
        Output(1, "stdout", b"hi"),
        StepEnded(1, 0),
        Artifact("x", b"abc"),
        Artifact("y", b""),
        ProjectEnded(Outcome.COMPLETED, "", artifacts_truncated=False),
    ]


def test_a_failed_step_is_the_last_and_artifacts_still_come() -> None:
    made = talk(PROJECT)
    assert hear(made, step(0, 7), artifact("y", 1, b"1"), (DONE, b""))[:2] == [
        StepEnded(0, 7),
        Artifact("y", b"1"),
    ]


def test_a_pong_needs_its_ping() -> None:
    made = talk()
    made.ping(4)
    assert hear(made, ({"t": "pong", "n": 4}, b"")) == [Pong(4)]
    with pytest.raises(BadTalk, match="pong_without_ping"):
        hear(made, ({"t": "pong", "n": 4}, b""))


def test_a_run_may_be_handed_over_before_the_agent_is_ready() -> None:
    made = Talk()
    made.begin(JavaScript("1"))
    assert hear(made, ({"t": "ready", "warm": []}, b""), (RESULT, b"")) == [Ready(()), SnippetEnded(0)]


def test_a_container_serves_one_run() -> None:
    with pytest.raises(RuntimeError):
        talk(PROJECT).begin(PROJECT)


def test_what_is_sent_describes_the_project_and_fits_into_frames() -> None:
    """Exact bytes, in pieces; a file without bytes is a file too."""
    big = bytes(range(256)) * 8192
    payload = Project(files=(File("d/ü\n", big), File("empty", b"")), steps=("a\r\n",), artifacts=("x",))
    data = b"".join(Talk().begin(payload))
    heard = list(frames.Decoder(MAX_FRAME).feed(data))
    assert b"".join(body for header, body in heard if header.get("path") == "d/ü\n") == big
    assert max(len(body) for _, body in heard) <= CHUNK
    assert heard[-4:] == [
        ({"t": "put", "path": "empty"}, b""),
        ({"t": "step"}, b"a\r\n"),
        ({"t": "want", "path": "x"}, b""),
        ({"t": "go"}, b""),
    ]


def test_a_snippet_is_one_frame() -> None:
    (data,) = Talk().begin(JavaScript("x\r\n\ufeff"))
    assert list(wire.Decoder().feed(data)) == [
        ({"t": "run", "language": "javascript"}, "x\r\n\ufeff".encode())
    ]


SNIPPET = Python("1")
BROKEN: dict[str, tuple[Runnable | None, list[Said], str]] = {
    "a second ready": (None, [({"t": "ready", "warm": []}, b"")], "not_ready_once"),
    "output without a run": (None, [out()], "no_run"),
    "a result without a run": (None, [(RESULT, b"")], "no_run"),
    "two results": (SNIPPET, [(RESULT, b""), (RESULT, b"")], "after_the_result"),
    "output after the result": (SNIPPET, [(RESULT, b""), out()], "after_the_result"),
    "a project's result for a snippet": (SNIPPET, [(DONE, b"")], "result_of_another_kind"),
    "no beginning of a project": (PROJECT, [({"t": "unbegun"}, b"")], "result_of_another_kind"),
    "a result after no beginning": (SNIPPET, [({"t": "unbegun"}, b""), (RESULT, b"")], "after_the_result"),
    "a snippet's result for a project": (PROJECT, [(RESULT, b"")], "result_of_another_kind"),
    "a step of a snippet": (SNIPPET, [step(0)], "no_such_step"),
    "an artifact of a snippet": (SNIPPET, [artifact("x", 0, b"")], "artifact_before_the_end"),
    "an exit code that is none": (SNIPPET, [({"t": "result", "exit": 256}, b"")], "exit_code"),
    "a negative exit code": (PROJECT, [step(0, -1)], "exit_code"),
    "an unknown frame": (SNIPPET, [({"t": "mark"}, b"")], "unknown_frame"),
    "no type": (SNIPPET, [({"exit": 0}, b"")], "unknown_frame"),
    "a type that is no word": (SNIPPET, [({"t": ["out"]}, b"")], "unknown_frame"),
    "a field too many": (SNIPPET, [(RESULT | {"oom_killed": True}, b"")], "unknown_frame"),
    "a truth for a number": (SNIPPET, [({"t": "result", "exit": True}, b"")], "unknown_frame"),
    "a number for a truth": (PROJECT, [(DONE | {"truncated": 1}, b"")], "unknown_frame"),
    "a body where there is none": (SNIPPET, [(RESULT, b"x")], "unexpected_body"),
    "output of nothing": (SNIPPET, [out(body=b"")], "empty_output"),
    "a third stream": (SNIPPET, [out(stream="stdin")], "unknown_stream"),
    "output of a step to come": (PROJECT, [out(1)], "output_of_no_step"),
    "output of a step that ended": (PROJECT, [step(0), out(0)], "output_of_no_step"),
    "output after a failed step": (PROJECT, [step(0, 1), out(1)], "output_of_no_step"),
    "a step out of order": (PROJECT, [step(1)], "no_such_step"),
    "a step after a failed one": (PROJECT, [step(0, 1), step(1)], "no_such_step"),
    "a step too many": (PROJECT, [step(0), step(1), step(2)], "no_such_step"),
    "completed with a step missing": (PROJECT, [step(0), (DONE, b"")], "steps_missing"),
    "set-up failed after a step": (
        PROJECT,
        [step(0), (DONE | {"outcome": "setup_failed", "detail": "files"}, b"")],
        "setup_after_a_step",
    ),
    "set-up failed after output": (
        PROJECT,
        [out(), (DONE | {"outcome": "setup_failed", "detail": "files"}, b"")],
        "setup_after_a_step",
    ),
    "an outcome of ours": (PROJECT, [step(0, 1), (DONE | {"outcome": "timed_out"}, b"")], "unknown_outcome"),
    "a detail in prose": (PROJECT, [step(0, 1), (DONE | {"detail": "No!"}, b"")], "unknown_outcome"),
    "a detail that only the host may give": (
        PROJECT,
        [step(0, 1), (DONE | {"outcome": "runner_failed", "detail": "out_of_memory"}, b"")],
        "unknown_outcome",
    ),
    "an artifact too early": (PROJECT, [step(0), artifact("x", 0, b"")], "artifact_before_the_end"),
    "an artifact nobody asked for": (PROJECT, [step(0, 1), artifact("z", 0, b"")], "artifact_not_asked_for"),
    "an artifact twice": (
        PROJECT,
        [step(0, 1), artifact("x", 0, b""), artifact("x", 0, b"")],
        "artifact_not_asked_for",
    ),
    "artifacts out of order": (
        PROJECT,
        [step(0, 1), artifact("y", 0, b""), artifact("x", 0, b"")],
        "artifact_not_asked_for",
    ),
    "an artifact longer than it said": (PROJECT, [step(0, 1), artifact("x", 1, b"ab")], "artifact_size"),
    "a piece of nothing": (PROJECT, [step(0, 1), artifact("x", 1, b"")], "artifact_size"),
    "an artifact that never ends": (
        PROJECT,
        [step(0, 1), artifact("x", 2, b"a"), (DONE, b"")],
        "artifact_size",
    ),
    "another artifact in between": (
        PROJECT,
        [step(0, 1), artifact("x", 2, b"a"), artifact("y", 2, b"a")],
        "two_artifacts_at_once",
    ),
    "a negative size": (PROJECT, [step(0, 1), artifact("x", -1, b"")], "artifacts_unbounded"),
    "artifacts over the bound": (
        PROJECT,
        [step(0, 1), artifact("x", ARTIFACTS_BYTES + 1, b"a")],
        "artifacts_unbounded",
    ),
    "output after an artifact": (
        PROJECT,
        [step(0), step(1), artifact("x", 0, b""), out(1)],
        "output_of_no_step",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_breaks_the_talk(case: str) -> None:
    payload, said, code = BROKEN[case]
    made = talk(payload)
    with pytest.raises(BadTalk) as refused:
        hear(made, *said)
    assert refused.value.code == code
    with pytest.raises(BadTalk):  # and nothing mends it
        hear(made, (RESULT, b""))


def test_nothing_comes_before_ready() -> None:
    made = Talk()
    made.begin(SNIPPET)
    with pytest.raises(BadTalk, match="not_ready_once"):
        hear(made, (RESULT, b""))


@pytest.mark.parametrize("warm", [["perl"], ["python"] * 3, [1]])
def test_only_known_languages_are_warm(warm: list[Any]) -> None:
    with pytest.raises(BadTalk, match="unknown_language"):
        hear(Talk(), ({"t": "ready", "warm": warm}, b""))


def test_output_is_bounded_a_stream_and_step() -> None:
    """Past the flood, which the meter sees first, by one frame; the next step starts anew."""
    made = talk(PROJECT, output_bytes=1024)
    piece = out(body=b"x" * 500_000)
    hear(made, piece, out(stream="stderr", body=b"x" * 500_000), piece, step(0), out(1, body=b"x" * 900_000))
    with pytest.raises(BadTalk, match="output_unbounded"):
        hear(made, out(1, body=b"x" * 900_000))


@pytest.mark.parametrize(
    "data", [b"\xff" * 8, b"\0\0\0\x08\0\0\0\x04nope", b"\0\0\x40\x04\0\0\x40\0" + b"[" * 0x4000]
)
def test_broken_framing_breaks_the_talk(data: bytes) -> None:
    made = talk(SNIPPET)
    with pytest.raises(BadTalk, match="bad_frame"):
        list(made.feed(data))
    assert made.broken == "bad_frame"


def test_after_a_cancel_fewer_steps_are_complete() -> None:
    made = talk(PROJECT)
    assert list(wire.Decoder().feed(made.cancel())) == [({"t": "cancel"}, b"")]
    assert hear(made, (DONE, b"")) == [ProjectEnded(Outcome.COMPLETED, "", artifacts_truncated=False)]


# --- calls ----------------------------------------------------------------------------------------------------------------


def call(number: int = 1, size: int = 7, body: bytes = b"message") -> Said:
    return {"t": "call", "n": number, "size": size}, body


SNIPPET = Python("1")


def calling(payload: Runnable = SNIPPET) -> Talk:
    """One whose run may make calls."""
    made = talk()
    made.begin(payload, calls=True)
    return made


def replies(made: Talk, number: int, answer: bytes = b"answer") -> list[Said]:
    return list(wire.Decoder().feed(b"".join(made.reply(number, answer))))


def test_a_run_that_may_call_says_so_first() -> None:
    first, *_ = talk().begin(PROJECT, calls=True)
    assert list(wire.Decoder().feed(first)) == [({"t": "calls"}, b"")]
    assert b'"calls"' not in b"".join(talk().begin(PROJECT))


def test_a_call_is_whole_before_it_is_heard_of_and_its_answer_names_it() -> None:
    made = calling()
    assert hear(made, call(size=7, body=b"mes")) == []
    assert hear(made, out(), call(size=7, body=b"sage")) == [
        Output(0, "stdout", b"hi"),
        Called(1, b"message"),
    ]
    assert replies(made, 1) == [({"t": "reply", "n": 1, "size": 6}, b"answer")]
    assert hear(made, call(2)) == [Called(2, b"message")]


def test_a_large_answer_travels_in_frames_and_one_that_is_too_large_not_at_all() -> None:
    made = calling()
    hear(made, call(1), call(2))
    large = bytes(3 * CHUNK + 1)
    parts = replies(made, 1, large)
    assert b"".join(body for _, body in parts) == large
    assert {header["size"] for header, _ in parts} == {len(large)}
    assert replies(made, 2, bytes(ANSWER_BYTES + 1)) == [({"t": "reply", "n": 2, "size": 0}, b"")]


BAD_CALLS: dict[str, tuple[Runnable, list[Said]]] = {
    "call_number": (Python("1"), [call(2)]),
    "call_number again": (Python("1"), [call(1), call(1)]),
    "calls_unbounded": (Python("1"), [call(size=MESSAGE_BYTES + 1)]),
    "calls_unbounded empty": (Python("1"), [call(size=0)]),
    "call_size": (Python("1"), [call(size=3)]),
    "call_size of nothing": (Python("1"), [call(size=3, body=b"")]),
    "call_size of two": (Python("1"), [call(1, 8), call(2, 8)]),
    "call_size at the result": (Python("1"), [call(1, 8), (RESULT, b"")]),
    "calls_at_once": (Python("1"), [call(n) for n in range(1, UNANSWERED + 2)]),
    "call_of_no_step": (PROJECT, [step(0), step(1), call()]),
    "call_of_no_step after a failure": (PROJECT, [step(0, 1), call()]),
    "after_the_result": (Python("1"), [(RESULT, b""), call()]),
}


@pytest.mark.parametrize("rule", BAD_CALLS)
def test_a_call_against_the_rules_breaks_the_talk(rule: str) -> None:
    payload, said = BAD_CALLS[rule]
    made = calling(payload)
    with pytest.raises(BadTalk) as caught:
        hear(made, *said)
    assert caught.value.code == rule.partition(" ")[0]


def test_a_call_of_a_run_that_may_make_none_breaks_the_talk() -> None:
    made = talk(Python("1"))
    with pytest.raises(BadTalk, match="call_without_grant"):
        hear(made, call())


@pytest.mark.parametrize(("bound", "code"), [("CALLS", "call_number"), ("CALLS_BYTES", "calls_unbounded")])
def test_a_run_can_make_so_many_calls_and_of_so_many_bytes(
    monkeypatch: pytest.MonkeyPatch, bound: str, code: str
) -> None:
    monkeypatch.setattr(module, bound, {"CALLS": 2, "CALLS_BYTES": 15}[bound])
    made = calling()
    for number in (1, 2):
        hear(made, call(number))
        replies(made, number)
    with pytest.raises(BadTalk, match=code):
        hear(made, call(3))


def test_answers_make_room_only_when_they_were_taken() -> None:
    made = calling()
    hear(made, *(call(number) for number in range(1, UNANSWERED + 1)))
    taking = made.reply(1, b"answer")
    next(taking)
    with pytest.raises(BadTalk, match="calls_at_once"):
        hear(made, call(UNANSWERED + 1))
