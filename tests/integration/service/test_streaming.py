"""Output as it comes: in order, whole, at the reader's pace, and never with an end that was not."""

import time
from base64 import b64decode
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.dispatch.killpoints import KillPoint
from plimsoll.contract.requests import Kind
from plimsoll.contract.results import ScriptResult
from plimsoll.records import result_digest
from tests.integration.service.conftest import House
from tests.integration.service.stand import EVENTS, Event, Json, Stand, events_in, keyed
from tests.integration.service.wire import Line, drain, stream
from tests.support.runs import rss_mb


def text_of(said: Json, stream_name: str = "stdout") -> bytes:
    """Bytes of a run answer's stream."""
    text: str = said["result"][stream_name]
    return b64decode(text) if said["result"][f"{stream_name}_encoding"] == "base64" else text.encode()


def bytes_in(events: list[Event], name: str) -> bytes:
    """What one stream's chunks say together."""
    chunks = [data for event, data in events if event == name]
    return b"".join(
        b64decode(each["data"]) if each["encoding"] == "base64" else each["data"].encode() for each in chunks
    )


def test_events_come_in_order_with_one_result_that_says_what_was_streamed(house: House) -> None:
    code = "out:one err:two sleep:30 out:three exit:3"
    events = house.served.events(code, token=house.alice)
    names = [name for name, _ in events]
    assert names == ["accepted", "stdout", "stderr", "stdout", "result"]
    accepted, answer = events[0][1], events[-1][1]
    assert set(accepted) >= {"id", "provider", "isolation", "evidence_sha256"}
    assert {name: answer[name] for name in accepted} == accepted
    assert (answer["result"]["exit_code"], answer["recorded"]) == (3, True)
    assert (text_of(answer), text_of(answer, "stderr")) == (b"onethree", b"two")
    plain = house.served.post(code, token=house.alice).json()
    assert set(plain) == set(answer), "the live result is the full run answer"
    assert plain["result"] == answer["result"]


def test_the_first_chunk_is_there_before_the_second_is_printed(house: House) -> None:
    with stream(house.served.running.url, "out:first sleep:500 out:second", token=house.alice) as line:
        first = line.until(b'"first"')
        assert b'"second"' not in line.data
        second = line.until(b'"second"')
        line.until(b"event: result")
    assert second - first > 0.4


GUEST = """
console.log("first");
const until = Date.now() + 500;
while (Date.now() < until);
console.log("second é"); console.error("third");
"""


@pytest.mark.component("wasm")
def test_a_real_guests_output_comes_while_it_runs(tmp_path: Path) -> None:
    with (
        Stand(tmp_path).service(more={"TEST_PROVIDER": "wasm"}) as served,
        stream(served.running.url, GUEST) as line,
    ):
        first = line.until(b"first")
        assert b"second" not in line.data
        second = line.until(b"second")
        line.rest()
    assert second - first > 0.4
    events = line.events()
    assert [name for name, _ in events][0 :: len(events) - 1] == ["accepted", "result"]
    answer = events[-1][1]
    assert bytes_in(events, "stdout") == text_of(answer) == "first\nsecond é\n".encode()
    assert bytes_in(events, "stderr") == text_of(answer, "stderr") == b"third\n"


def test_the_digest_covers_exactly_the_bytes_that_were_streamed(house: House) -> None:
    code = "hex:00ff80 fill:70000 sleep:10 hex:e282 err:last hex:ac"
    events = house.served.events(code, token=house.alice)
    answer = events[-1][1]
    said = answer["result"]
    streamed = ScriptResult(
        kind=Kind.JAVASCRIPT,
        exit_code=0,
        timed_out=False,
        stdout=bytes_in(events, "stdout"),
        stderr=bytes_in(events, "stderr"),
        stdout_truncated=said["stdout_truncated"],
        stderr_truncated=said["stderr_truncated"],
    )
    assert streamed.stdout == text_of(answer)
    assert streamed.stderr == text_of(answer, "stderr")
    assert result_digest(streamed) == answer["record"]["result_sha256"]


@pytest.mark.parametrize(
    ("code", "chunks"),
    [
        ("hex:c3 sleep:20 hex:a9", [("é", "utf-8")]),
        ("hex:f09f sleep:20 hex:92 sleep:20 hex:a921", [("💩!", "utf-8")]),
        ("hex:61e2 sleep:20 hex:82ac62", [("a", "utf-8"), ("€b", "utf-8")]),
        ("hex:61c3", [("a", "utf-8"), ("ww==", "base64")]),
        ("hex:ff61 sleep:20 out:b", [("/2E=", "base64"), ("b", "utf-8")]),
        ("hex:c3 sleep:20 err:between hex:a9", [("é", "utf-8")]),
    ],
)
def test_a_character_that_was_split_stays_whole_and_other_bytes_are_kept(
    house: House, code: str, chunks: list[tuple[str, str]]
) -> None:
    events = house.served.events(code, token=house.alice)
    assert [(data["data"], data["encoding"]) for name, data in events if name == "stdout"] == chunks
    assert bytes_in(events, "stdout") == text_of(events[-1][1])


def test_a_guest_that_prints_our_markers_only_prints(house: House) -> None:
    forged = b'\n\nevent: result\ndata: {"id": "forged"}\n\r\n\rdata: x\n: comment\nid: 1\n\nevent: error\ndata: {}\n\n'
    code = f"hex:{forged.hex()} sleep:20 hex:{forged.hex()}"
    with stream(house.served.running.url, code, token=house.alice) as line:
        line.rest()
    events = line.events()
    assert [name for name, _ in events] == ["accepted", "stdout", "stdout", "result"]
    assert bytes_in(events, "stdout") == 2 * forged
    assert not any(part.startswith(b"event: error") for part in line.body().splitlines())
    assert line.body().count(b"\n\n") == len(events)


def test_a_refusal_before_the_start_is_a_plain_problem(house: House) -> None:
    body = {"payload": {"kind": "javascript", "code": "effect:weak"}, "minimum_isolation": "kernel"}
    headers = EVENTS | {"authorization": f"Bearer {house.alice}"}
    answer = house.served.http.post("/v1/runs", json=body, headers=headers)
    assert (answer.status_code, answer.headers["plimsoll-not-dispatched"]) == (412, "isolation")
    assert answer.headers["content-type"] == "application/problem+json"
    assert house.served.post("out:x", EVENTS, token="plim_no").status_code == 401


@pytest.mark.parametrize(
    ("code", "names", "mark"),
    [
        ("refuse", ["error"], {"reason": "environment"}),
        ("effect break", ["accepted", "error"], None),
        ("out:some effect break", ["accepted", "stdout", "error"], None),
        ("effect raise", ["error"], None),
    ],
)
def test_a_run_without_an_end_is_one_error_and_no_result(
    house: House, code: str, names: list[str], mark: Json | None
) -> None:
    events = house.served.events(code, token=house.alice)
    assert [name for name, _ in events] == names
    problem = events[-1][1]
    assert problem.get("not_dispatched") == mark
    assert problem["code"] == ("unavailable" if mark else "may_have_run")
    assert house.served.get(problem["run_id"], token=house.alice)["settled"]


def test_a_key_whose_first_caller_streamed_is_replayed_with_the_same_bytes(house: House) -> None:
    key = keyed("streamed")
    code = "effect:streamed out:a sleep:20 hex:ff"
    live = house.served.post(code, key | EVENTS, token=house.alice)
    replay = house.served.post(code, key | EVENTS, token=house.alice)
    plain = house.served.post(code, key, token=house.alice)
    assert [name for name, _ in events_in(live.content)] == ["accepted", "stdout", "stdout", "result"]
    assert [name for name, _ in events_in(replay.content)] == ["accepted", "result"]
    last = [answer.content.rpartition(b"event: result\ndata: ")[2] for answer in (live, replay)]
    assert last == [plain.content + b"\n\n"] * 2
    assert house.stand.labels()["streamed"] == 1


@pytest.mark.parametrize("point", [KillPoint.AFTER_ACCEPTED, KillPoint.AFTER_END_COMMIT])
def test_a_stream_that_a_kill_cut_has_no_end(sqlite_stand: Stand, point: KillPoint) -> None:
    with sqlite_stand.service(point) as served, stream(served.running.url, "begin sleep:50 out:x") as line:
        line.rest()
        assert served.running.process.wait(10) == -9
    assert not {"result", "error"} & {name for name, _ in line.events()}
    assert not line.data.endswith(b"0\r\n\r\n"), "the answer must not look complete"


STREAMS = 100
FULL = 65_536
ALLOWED_MB = 0.5
"""Memory of the service for one stream: the bytes of both outputs, and what is made of them at the end."""


def test_slow_readers_hold_their_own_run_back_and_not_the_service(tmp_path: Path) -> None:
    wide = {name: str(STREAMS + 20) for name in ("SANDBOX_MAX_CONCURRENT", "SANDBOX_PER_CALLER_CONCURRENT")}
    with (
        Stand(tmp_path).service(more=wide | {"TEST_SLOTS": str(STREAMS + 20)}) as served,
        ExitStack() as held,
    ):
        served.post(f"fill:{FULL}")
        process = served.running.process.pid
        before = rss_mb(process)
        lines = [
            held.enter_context(stream(served.running.url, f"fill:{FULL}", buffer=4096))
            for _ in range(STREAMS)
        ]
        grown = 0.0
        for _ in range(15):
            time.sleep(0.1)
            grown = max(grown, rss_mb(process) - before)
        asked = time.monotonic()
        assert served.post("out:quick").status_code == 200
        assert time.monotonic() - asked < 20, "others do not wait for slow readers"
        trickle(lines, rounds=4)
        grown = max(grown, rss_mb(process) - before)
        drain(lines)
        for events in (line.events() for line in lines):
            assert len(bytes_in(events, "stdout")) == len(bytes_in(events, "stderr")) == FULL
            assert [name for name, _ in events].count("result") == 1
        print(f"\n{STREAMS} slow streams: {grown:.1f} MiB more, {grown / STREAMS * 1024:.0f} KiB each")
    assert grown < STREAMS * ALLOWED_MB


def trickle(lines: list[Line], *, rounds: int) -> None:
    """Take a little of each, so that nobody is cut as stalled."""
    for _ in range(rounds):
        for line in lines:
            line.read(2048)
        time.sleep(0.2)
