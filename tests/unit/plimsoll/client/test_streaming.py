"""What a stream may say, in which order, and what its end proves (S18)."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.client import errors
from plimsoll.client.core import Core, Prepared, snippet
from plimsoll.client.results import Run
from plimsoll.client.streaming import Accepted, Output, Reading, StreamEvent
from plimsoll.contract import bounds
from plimsoll.contract.refusals import Reason
from plimsoll.contract.requests import RunRequest
from plimsoll.contract.tiers import Tier
from tests.unit.plimsoll import honest
from tests.unit.plimsoll.client.exchanges import CODE, core, play, raises, received

ANSWER = honest.run_answer()
WHOLE = honest.stream_events(ANSWER, b"4", b"2\n")
FIRST, FOUR, TWO, LAST = WHOLE
OTHER = honest.run_answer(stdout=b"43\n")


def read(
    parts: Iterable[bytes], one: Core | None = None, **how: Any
) -> tuple[list[StreamEvent], Reading[Run], errors.PlimsollError | None]:
    """What was said, the reading, and the error it ended with; the request's id is the first of IDS."""
    streaming = (one or core()).stream(snippet(CODE, **how))
    reading, said = streaming.reading, []
    head = received(streaming.prepared, b"").head
    try:
        for part in parts:
            for event in reading.feed(part):
                said.append(event)  # noqa: PERF402 - what came before an error counts
        said += reading.end(head, honest.NOW, honest.NOW + 5)
    except errors.PlimsollError as error:
        return said, reading, error
    return said, reading, None


def test_an_honest_stream_is_its_events_and_then_the_run() -> None:
    said, reading, error = read(WHOLE, floor=None)
    assert error is None
    assert said == [
        Accepted("a" * 32, "wasm", Tier.PROCESS, honest.EVIDENCE),
        Output("stdout", b"4"),
        Output("stdout", b"2\n"),
    ]
    assert reading.run is not None
    assert (reading.run.stdout, reading.run.isolation) == (b"42\n", Tier.PROCESS)
    assert "42" not in repr(said)


def test_both_streams_keep_alives_and_bytes_that_are_no_text() -> None:
    answer = honest.run_answer(stdout=b"\xff\xfe")
    parts = [
        b": still running\n\n",
        FIRST,
        honest.chunk(b"\xff"),
        b": still running\n\n",
        honest.chunk(b"\xfe"),
    ]
    said, _, error = read([*parts, honest.event("result", answer), b": bye\n\n"])
    assert error is None
    assert [event.data for event in said if isinstance(event, Output)] == [b"\xff", b"\xfe"]


@given(st.lists(st.integers(0, 2000), max_size=12))
def test_any_cutting_says_the_same(at: list[int]) -> None:
    whole = b"".join(WHOLE)
    marks = [0, *sorted(min(mark, len(whole)) for mark in at), len(whole)]
    parts = [whole[start:end] for start, end in pairwise(marks)]
    said, reading, error = read(parts)
    assert (said, error) == (read(WHOLE)[0], None)
    assert reading.run is not None


@given(st.data())
def test_no_changed_byte_is_believed(draw: st.DataObject) -> None:
    whole = b"".join([FIRST, FOUR, TWO])
    place = draw.draw(st.integers(0, len(whole) - 1))
    byte = draw.draw(st.integers(0, 255).filter(lambda value: value != whole[place]))
    said, _, error = read([whole[:place] + bytes([byte]) + whole[place + 1 :], LAST])
    if (
        error is None
    ):  # only what no digest covers may differ: the two facts of `accepted` that are checked apart
        assert [event for event in said if isinstance(event, Output)] == [
            Output("stdout", b"4"),
            Output("stdout", b"2\n"),
        ]
    else:
        assert error.not_dispatched is None


STREAMS: dict[str, tuple[list[bytes], type[errors.PlimsollError]]] = {
    "nothing": ([], errors.StreamCut),
    "only comments": ([b": x\n\n"], errors.StreamCut),
    "cut before the result": ([FIRST, FOUR, TWO], errors.StreamCut),
    "cut in the result": ([FIRST, FOUR, TWO, LAST[:-1]], errors.StreamCut),
    "half an event after the result": ([*WHOLE, b"event: stdout\n"], errors.StreamCut),
    "altered chunk": ([FIRST, honest.chunk(b"5"), TWO, LAST], errors.RecordMismatch),
    "dropped chunk": ([FIRST, TWO, LAST], errors.RecordMismatch),
    "no chunk at all": ([FIRST, LAST], errors.RecordMismatch),
    "duplicated chunk": ([FIRST, FOUR, FOUR, TWO, LAST], errors.RecordMismatch),
    "swapped chunks": ([FIRST, TWO, FOUR, LAST], errors.RecordMismatch),
    "chunk on the other stream": ([FIRST, FOUR, honest.chunk(b"2\n", "stderr"), LAST], errors.RecordMismatch),
    "result of other bytes": ([FIRST, FOUR, TWO, honest.event("result", OTHER)], errors.RecordMismatch),
    "result and chunks altered alike": (
        [FIRST, FOUR, honest.chunk(b"3\n"), honest.event("result", ANSWER | {"result": OTHER["result"]})],
        errors.RecordMismatch,
    ),
    "only the result's bytes altered": (
        [FIRST, FOUR, TWO, honest.event("result", ANSWER | {"result": OTHER["result"]})],
        errors.RecordMismatch,
    ),
    "no record": ([FIRST, FOUR, TWO, honest.event("result", ANSWER | {"record": None})], errors.NoRecord),
    "two results": ([*WHOLE, LAST], errors.MalformedResponse),
    "output after the result": ([*WHOLE, honest.chunk(b"x")], errors.MalformedResponse),
    "error after the result": (
        [*WHOLE, honest.event("error", honest.problem("internal", 500, None))],
        errors.MalformedResponse,
    ),
    "result first": ([LAST, FIRST, FOUR, TWO], errors.MalformedResponse),
    "output first": ([FOUR, FIRST, TWO, LAST], errors.MalformedResponse),
    "accepted twice": ([FIRST, FIRST, FOUR, TWO, LAST], errors.MalformedResponse),
    "unknown event": ([FIRST, honest.event("progress", {}), LAST], errors.MalformedResponse),
    "unknown event first": ([honest.event("progress", {}), *WHOLE], errors.MalformedResponse),
    "no json": ([FIRST, b"event: stdout\ndata: hello\n\n"], errors.MalformedResponse),
    "no object": ([FIRST, b"event: stdout\ndata: []\n\n"], errors.MalformedResponse),
    "no utf-8": ([FIRST, b'event: stdout\ndata: {"data": "\xff"}\n\n'], errors.MalformedResponse),
    "NaN": ([FIRST, b'event: stdout\ndata: {"data": NaN}\n\n'], errors.MalformedResponse),
    "a key twice": (
        [FIRST, b'event: stdout\ndata: {"data": "4", "data": "5", "encoding": "utf-8"}\n\n'],
        errors.MalformedResponse,
    ),
    "lone surrogate": (
        [FIRST, honest.event("stdout", {"data": "\ud800", "encoding": "utf-8"})],
        errors.MalformedResponse,
    ),
    "unknown encoding": (
        [FIRST, honest.event("stdout", {"data": "4", "encoding": "latin-1"})],
        errors.MalformedResponse,
    ),
    "bad base64": (
        [FIRST, honest.event("stdout", {"data": "4", "encoding": "base64"})],
        errors.MalformedResponse,
    ),
    "base64 in two ways": (
        [FIRST, honest.event("stdout", {"data": "/x==", "encoding": "base64"})],
        errors.MalformedResponse,
    ),
    "wrong type": (
        [FIRST, honest.event("stdout", {"data": 4, "encoding": "utf-8"})],
        errors.MalformedResponse,
    ),
    "accepted without a wall": ([honest.event("accepted", {"id": "a" * 32})], errors.MalformedResponse),
    "more output than any run has": (
        [FIRST, *[honest.chunk(b"x" * 60_000)] * 2],
        errors.MalformedResponse,
    ),
    "a long line": ([FIRST, b"data: " + b"x" * (bounds.MIB + 1)], errors.MalformedResponse),
    "more than 32 MiB": ([b":" + b"x" * 65_534 + b"\n"] * 513, errors.ResponseTooLarge),
    "another run's result": (
        [FIRST, FOUR, TWO, honest.event("result", ANSWER | {"id": "b" * 32})],
        errors.AnswerNotBound,
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_is_not_exactly_right_is_refused_unmarked(name: str) -> None:
    parts, kind = STREAMS[name]
    for cut in (parts, [b"".join(parts)]):
        said, reading, error = read(cut)
        assert type(error) is kind
        assert error.not_dispatched is None
        assert reading.run is None
        assert all(isinstance(event, Accepted | Output) for event in said)


@pytest.mark.parametrize("tier", ["process", "container", "none", "fortress"])
def test_33_a_wall_below_the_floor_is_refused_before_any_output(tier: str) -> None:
    first = honest.accepted(ANSWER | {"isolation": tier})
    said, _, error = read([first], floor="kernel")
    assert type(error) is errors.IsolationEvidenceMismatch
    assert (said, error.not_dispatched) == ([], None)


def test_33_an_unknown_wall_is_refused_without_a_floor_too() -> None:
    assert (
        type(read([honest.accepted(ANSWER | {"isolation": "fortress"})])[2])
        is errors.IsolationEvidenceMismatch
    )


def test_the_result_may_be_behind_a_weaker_wall_and_never_a_stronger_one() -> None:
    request = RunRequest(CODE, Tier.PROCESS)
    strong, weak = honest.run_answer(request, tier="kernel"), honest.run_answer(request)
    down = [honest.accepted(strong), honest.chunk(b"42\n"), honest.event("result", weak)]
    assert read(down, floor="process")[2] is None
    up = [honest.accepted(weak), honest.chunk(b"42\n"), honest.event("result", strong)]
    error = read(up, floor="process")[2]
    assert isinstance(error, errors.RecordMismatch)
    assert error.fields == ("isolation",)


def test_the_result_is_of_the_provider_that_accepted() -> None:
    error = read([honest.accepted(ANSWER | {"provider": "docker"}), FOUR, TWO, LAST])[2]
    assert isinstance(error, errors.RecordMismatch)
    assert error.fields == ("provider",)
    assert error.result is not None


def refusal_event(reason: str | None, request_id: str = f"{1:032x}", **more: Any) -> bytes:
    problem = honest.problem("capacity", 429, reason, request_id=request_id)
    return honest.event("error", problem | more)


def test_a_mark_is_believed_only_before_the_run_was_accepted() -> None:
    error = read([refusal_event("capacity")])[2]
    assert isinstance(error, errors.Capacity)
    assert error.not_dispatched is Reason.CAPACITY
    for before in ([FIRST], [FIRST, FOUR]):
        later = read([*before, refusal_event("capacity")])[2]
        assert isinstance(later, errors.Capacity)
        assert later.not_dispatched is None


@pytest.mark.parametrize("request_id", ["", "f" * 32, None])
def test_a_mark_in_a_stream_counts_only_with_our_own_id(request_id: Any) -> None:
    error = read([refusal_event("capacity", request_id)])[2]
    assert isinstance(error, errors.Capacity)
    assert error.not_dispatched is None


@pytest.mark.parametrize(("code", "status"), [("internal", 500), ("may_have_run", 502), ("capacity", 500)])
def test_a_mark_that_contradicts_itself_proves_nothing(code: str, status: int) -> None:
    error = read([refusal_event("capacity", code=code, status=status)])[2]
    assert error is not None
    assert error.not_dispatched is None


def test_a_marked_error_that_is_not_the_end_proves_nothing() -> None:
    for after in ([FIRST], WHOLE, [refusal_event("capacity")]):
        error = read([refusal_event("capacity"), *after])[2]
        assert type(error) is errors.MalformedResponse
        assert error.not_dispatched is None
    cut = read([refusal_event("capacity")[:-1]])[2]
    assert type(cut) is errors.StreamCut


def test_an_error_names_the_run() -> None:
    event = honest.event("error", honest.problem("may_have_run", 502, None, run_id="b" * 32))
    error = read([FIRST, event])[2]
    assert isinstance(error, errors.MayHaveRun)
    assert (error.run_id, error.status, error.not_dispatched) == ("b" * 32, 502, None)


def test_s8_holds_for_streams() -> None:
    old = honest.run_answer(now=honest.NOW - 86_400_000)
    assert type(read(honest.stream_events(old, b"42\n"))[2]) is errors.StaleAnswer
    one = core()
    assert read(WHOLE, one)[2] is None
    assert type(read(WHOLE, one)[2]) is errors.StaleAnswer


def test_a_stored_answer_is_given_with_all_its_output_under_a_key_only() -> None:
    said, reading, error = read([FIRST, LAST], idempotency_key="k")
    assert error is None
    assert said[1:] == [Output("stdout", b"42\n")]
    assert reading.run is not None
    assert type(read([FIRST, LAST])[2]) is errors.RecordMismatch
    assert type(read([FIRST, FOUR, LAST], idempotency_key="k")[2]) is errors.RecordMismatch


def test_an_answer_that_is_no_stream() -> None:
    one = core()
    prepared: Prepared[Any] = one.stream(snippet(CODE)).prepared
    with raises(prepared, errors.MalformedResponse):
        play(prepared, ANSWER)
    with raises(prepared, errors.MalformedResponse):
        play(prepared, honest.pending(ANSWER), status=202)
    keyed: Prepared[Any] = one.stream(snippet(CODE, idempotency_key="k")).prepared
    with raises(keyed, errors.RunPending) as caught:
        play(keyed, honest.pending(ANSWER), status=202)
    assert (caught[0].run_id, caught[0].not_dispatched) == ("a" * 32, None)
    with raises(keyed, errors.AnswerNotBound):
        play(keyed, honest.pending(ANSWER), status=202, request_id="f" * 32)


def test_the_head_of_a_stream() -> None:
    headers = dict(core().stream(snippet(CODE, idempotency_key="k")).prepared.headers)
    assert (headers["accept"], headers["idempotency-key"]) == ("text/event-stream", "k")
    assert "prefer" not in headers
