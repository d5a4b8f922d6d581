"""Both clients reading streams of a service that does everything wrong, over real sockets."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from typing_extensions import override

import plimsoll
from plimsoll.client import errors
from plimsoll.contract.refusals import Reason
from tests.integration.client.stub import (
    Behaviour,
    Seen,
    Stub,
    answer,
    chunk,
    sends,
    serving,
    stream,
    stream_head,
)
from tests.unit.plimsoll import honest

CODE = "console.log('hunter2')"
TOKEN = "secret-token"

Event = plimsoll.Accepted | plimsoll.Output | plimsoll.StepEnded
Read = Callable[..., plimsoll.Run]


def read_sync(
    url: str, said: list[Event], *, deadline: float = 10, pause: float = 0, **how: Any
) -> plimsoll.Run:
    with (
        plimsoll.Client(url, TOKEN, deadline=deadline) as client,
        client.stream_javascript(CODE, **how) as events,
    ):
        for event in events:
            said.append(event)
            time.sleep(pause)
        return events.result


def read_async(
    url: str, said: list[Event], *, deadline: float = 10, pause: float = 0, **how: Any
) -> plimsoll.Run:
    async def main() -> plimsoll.Run:
        async with (
            plimsoll.AsyncClient(url, TOKEN, deadline=deadline) as client,
            client.stream_javascript(CODE, **how) as events,
        ):
            async for event in events:
                said.append(event)
                await asyncio.sleep(pause)
            return events.result

    return asyncio.run(main())


@pytest.fixture(params=[read_sync, read_async], ids=["sync", "async"])
def read(request: pytest.FixtureRequest) -> Read:
    chosen: Read = request.param
    return chosen


def events_of(seen: Seen, *pieces: bytes, **how: Any) -> list[bytes]:
    return honest.stream_events(seen.honest(**how), *(pieces or (b"4", b"2\n")))


def refusal(behaviour: Behaviour, read: Read, **how: Any) -> tuple[errors.PlimsollError, list[Event], Stub]:
    said: list[Event] = []
    with serving(behaviour) as stub, pytest.raises(errors.PlimsollError) as caught:
        read(stub.url, said, **how)
    error = caught.value
    assert error.request_id == stub.seen[0].request_id
    assert len(stub.seen) == 1
    for text in (str(error), repr(error), repr(error.result)):
        assert "hunter2" not in text
        assert TOKEN not in text
    return error, said, stub


def test_an_honest_stream_is_believed(read: Read) -> None:
    said: list[Event] = []
    with serving(sends(lambda seen: stream(seen, *events_of(seen)))) as stub:
        run = read(stub.url, said, floor="process")
    assert [event.data for event in said if isinstance(event, plimsoll.Output)] == [b"4", b"2\n"]
    assert (run.text, run.request_id) == ("42\n", stub.seen[0].request_id)
    assert stub.seen[0].header("accept") == "text/event-stream"
    assert stub.seen[0].header("authorization") == f"Bearer {TOKEN}"


def without(events: list[bytes], index: int) -> list[bytes]:
    return events[:index] + events[index + 1 :]


STREAMS: dict[str, tuple[Callable[[Seen], bytes], type[errors.PlimsollError]]] = {
    "id missing": (lambda s: stream(s, *events_of(s), request_id=""), errors.AnswerNotBound),
    "another id": (lambda s: stream(s, *events_of(s), request_id="f" * 32), errors.AnswerNotBound),
    "altered chunk": (
        lambda s: stream(s, *events_of(s)).replace(b'"data": "4"', b'"data": "5"'),
        errors.RecordMismatch,
    ),
    "dropped chunk": (lambda s: stream(s, *without(events_of(s), 1)), errors.RecordMismatch),
    "duplicated chunk": (lambda s: stream(s, *events_of(s)[:2], *events_of(s)[1:]), errors.RecordMismatch),
    "two results": (lambda s: stream(s, *events_of(s), events_of(s)[-1]), errors.MalformedResponse),
    "result first": (lambda s: stream(s, *reversed(events_of(s))), errors.MalformedResponse),
    "another request's stream": (
        lambda s: stream(s, *honest.stream_events(honest.run_answer(), b"42\n")),
        errors.RecordMismatch,
    ),
    "old stream": (
        lambda s: stream(
            s,
            *honest.stream_events(
                honest.run_answer(honest.request_of(s.body), now=honest.NOW - 86_400_000), b"42\n"
            ),
        ),
        errors.StaleAnswer,
    ),
    "ends before the result": (lambda s: stream(s, *events_of(s)[:-1]), errors.StreamCut),
    "cut before the result": (lambda s: stream(s, *events_of(s)[:-1], whole=False), errors.StreamCut),
    "cut in an event": (lambda s: stream(s, *events_of(s))[:-60], errors.StreamCut),
    "cut after the result": (lambda s: stream(s, *events_of(s), whole=False), errors.StreamCut),
    "cut before the first event": (stream_head, errors.StreamCut),
    "cut in the head": (lambda s: stream_head(s)[:20], errors.TransportError),
    "no stream": (lambda s: answer(s, s.honest()), errors.MalformedResponse),
    "no stream and pending": (
        lambda s: answer(s, honest.pending(s.honest()), status=202),
        errors.MalformedResponse,
    ),
    "redirect": (
        lambda s: answer(s, b"", status=307, headers=("location: /v1/runs",)),
        errors.RedirectRefused,
    ),
    "low tier": (lambda s: stream(s, *events_of(s, tier="none")), errors.IsolationEvidenceMismatch),
    "encoded": (
        lambda s: stream(s, *events_of(s)).replace(b"connection: close", b"content-encoding: gzip"),
        errors.MalformedResponse,
    ),
    "broken transfer": (lambda s: stream_head(s) + b"zz\r\n", errors.StreamCut),
    "mark after the start": (
        lambda s: stream(
            s,
            events_of(s)[0],
            honest.event("error", honest.problem("capacity", 429, "capacity", request_id=s.request_id)),
        ),
        errors.Capacity,
    ),
    "may have run": (
        lambda s: stream(
            s, events_of(s)[0], honest.event("error", honest.problem("may_have_run", 502, None))
        ),
        errors.MayHaveRun,
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_hostile_stream_is_refused_unmarked_and_sent_once(name: str, read: Read) -> None:
    make, kind = STREAMS[name]
    error, _, _ = refusal(sends(make), read, floor="process")
    assert type(error) is kind
    assert error.not_dispatched is None


@pytest.mark.parametrize("in_a_stream", [False, True])
def test_a_marked_refusal_before_the_start_is_marked(read: Read, *, in_a_stream: bool) -> None:
    def make(seen: Seen) -> bytes:
        problem = honest.problem("capacity", 429, "capacity", request_id=seen.request_id)
        return (
            stream(seen, honest.event("error", problem)) if in_a_stream else answer(seen, problem, status=429)
        )

    error, said, _ = refusal(sends(make), read)
    assert (type(error), error.not_dispatched, said) == (errors.Capacity, Reason.CAPACITY, [])


def test_a_refused_connection_is_marked(read: Read) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(errors.TransportError) as caught:
        read(f"http://127.0.0.1:{port}", [])
    assert caught.value.not_dispatched is Reason.ENVIRONMENT


def test_an_old_stream_again_is_refused() -> None:
    kept: list[list[bytes]] = []

    def make(seen: Seen) -> bytes:
        kept.append(events_of(seen))
        return stream(seen, *kept[0])

    with serving(sends(make)) as stub, plimsoll.Client(stub.url, TOKEN) as client:
        with client.stream_javascript(CODE) as first:
            assert len(list(first)) == 3
        with client.stream_javascript(CODE) as second, pytest.raises(errors.StaleAnswer):
            list(second)


def test_a_trickling_stream_ends_at_the_deadline_of_the_whole(read: Read) -> None:
    def behave(seen: Seen, connection: socket.socket) -> None:
        connection.sendall(stream_head(seen) + chunk(events_of(seen)[0]))
        while True:
            connection.sendall(chunk(b": still running\n\n"))
            time.sleep(0.02)

    start = time.monotonic()
    error, said, _ = refusal(behave, read, deadline=0.5)
    assert type(error) is errors.RequestTimeout
    assert (error.not_dispatched, len(said)) == (None, 1)
    assert time.monotonic() - start < 30


def test_a_stream_that_does_not_end_after_its_result_is_not_believed(read: Read) -> None:
    def behave(seen: Seen, connection: socket.socket) -> None:
        connection.sendall(stream(seen, *events_of(seen), whole=False))
        time.sleep(4)

    error, said, _ = refusal(behave, read, deadline=2.0)
    assert type(error) is errors.RequestTimeout
    assert len(said) == 3


def test_33_a_wall_below_the_floor_closes_the_connection_at_once(read: Read) -> None:
    closed = threading.Event()

    def behave(seen: Seen, connection: socket.socket) -> None:
        connection.sendall(stream_head(seen) + chunk(events_of(seen)[0]))
        if connection.recv(1) == b"":
            closed.set()

    error, said, _ = refusal(behave, read, floor="kernel")
    assert type(error) is errors.IsolationEvidenceMismatch
    assert said == []
    assert closed.wait(5)


def test_leaving_early_hangs_up(read: Read) -> None:
    closed = threading.Event()

    def behave(seen: Seen, connection: socket.socket) -> None:
        connection.sendall(stream_head(seen) + chunk(events_of(seen)[0]))
        if connection.recv(1) == b"":
            closed.set()

    class Left(Exception):
        pass

    class Leaves(list[Event]):
        @override
        def append(self, event: Event) -> None:
            raise Left

    with serving(behave) as stub:
        with pytest.raises(Left):
            read(stub.url, Leaves())
        assert closed.wait(5)


def test_a_slow_reader_is_felt_by_the_service_and_loses_nothing(read: Read) -> None:
    output = b"x" * 2000
    sent = [0]
    most_ahead = [0]
    said: list[Event] = []

    def behave(seen: Seen, connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        first, *chunks, last = honest.stream_events(seen.honest(stdout=output), *[b"x"] * len(output))
        connection.sendall(stream_head(seen) + chunk(first))
        for each in chunks:
            # Padding, so that what the sockets hold is few events.
            connection.sendall(chunk(b":" + b" " * 4000 + b"\n" + each))
            sent[0] += 1
            most_ahead[0] = max(most_ahead[0], sent[0] - len(said))
        connection.sendall(chunk(last) + chunk(b""))

    with serving(behave) as stub:
        run = read(stub.url, said, pause=0.001, deadline=60)
    assert run.stdout == output
    assert len(said) == len(output) + 1
    assert most_ahead[0] < len(output) - 100


def test_an_error_is_the_last_word_of_a_stream() -> None:
    with serving(sends(lambda s: stream(s, *events_of(s)[:-1]))) as stub, plimsoll.Client(stub.url) as client:
        with client.stream_javascript(CODE) as events:
            with pytest.raises(RuntimeError, match="end"):
                events.result  # noqa: B018 - the access is the test
            with pytest.raises(errors.StreamCut) as first:
                list(events)
            with pytest.raises(errors.StreamCut) as again:
                next(events)
            with pytest.raises(errors.StreamCut) as result:
                events.result  # noqa: B018 - the access is the test
        assert first.value is again.value is result.value


def test_a_stream_is_opened_once_and_read_inside_its_block() -> None:
    with serving(sends(lambda s: stream(s, *events_of(s)))) as stub, plimsoll.Client(stub.url) as client:
        events = client.stream_javascript(CODE)
        with pytest.raises(RuntimeError, match="inside"):
            next(events)
        assert stub.seen == []
        with events:
            assert len(list(events)) == 3
            assert list(events) == []
        with pytest.raises(RuntimeError, match="once"), events:
            pass
    assert len(stub.seen) == 1


async def test_13_a_stream_cancelled_before_sending_sends_nothing() -> None:
    async def consume(client: plimsoll.AsyncClient) -> None:
        async with client.stream_javascript(CODE):
            pass

    with serving(sends(lambda s: stream(s, *events_of(s)))) as stub:
        async with plimsoll.AsyncClient(stub.url, TOKEN) as client:
            task = asyncio.create_task(consume(client))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
    assert caught.value.not_dispatched is Reason.REQUEST  # type: ignore[attr-defined]
    assert stub.seen == []


async def test_a_stream_cancelled_in_the_middle_is_cut_and_not_marked() -> None:
    closed = threading.Event()

    def behave(seen: Seen, connection: socket.socket) -> None:
        connection.sendall(stream_head(seen) + chunk(events_of(seen)[0]))
        if connection.recv(1) == b"":
            closed.set()

    with serving(behave) as stub:
        async with plimsoll.AsyncClient(stub.url, TOKEN) as client, client.stream_javascript(CODE) as events:
            assert isinstance(await anext(events), plimsoll.Accepted)
            task = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert await asyncio.to_thread(closed.wait, 5)
            with pytest.raises(errors.StreamCut):
                await anext(events)
    assert caught.value.not_dispatched is None  # type: ignore[attr-defined]
