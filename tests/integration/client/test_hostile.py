"""Both clients against a service that does everything wrong, over real sockets: what is raised, and whether it is marked."""

import asyncio
import gzip
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import plimsoll
from plimsoll.client import errors
from plimsoll.contract.refusals import Reason
from tests.integration.client.stub import Behaviour, Seen, Stub, answer, sends, serving, trickle
from tests.unit.plimsoll import honest

CODE = "console.log('hunter2')"
TOKEN = "secret-token"

Run = Callable[..., plimsoll.Run]


def run_sync(url: str, *, deadline: float = 10, times: int = 1, **how: Any) -> plimsoll.Run:
    with plimsoll.Client(url, TOKEN, deadline=deadline) as client:
        return [client.run_javascript(CODE, **how) for _ in range(times)][-1]


def run_async(url: str, *, deadline: float = 10, times: int = 1, **how: Any) -> plimsoll.Run:
    async def main() -> plimsoll.Run:
        async with plimsoll.AsyncClient(url, TOKEN, deadline=deadline) as client:
            return [await client.run_javascript(CODE, **how) for _ in range(times)][-1]

    return asyncio.run(main())


@pytest.fixture(params=[run_sync, run_async], ids=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


def refusal(behaviour: Behaviour, run: Run, **how: Any) -> tuple[errors.PlimsollError, Stub]:
    with serving(behaviour) as stub:
        with pytest.raises(errors.PlimsollError) as caught:
            run(stub.url, **how)
        error = caught.value
    assert error.request_id
    for text in (str(error), repr(error), repr(error.result)):
        assert "hunter2" not in text
        assert TOKEN not in text
    return error, stub


def test_an_honest_service_is_believed(run: Run) -> None:
    with serving(sends(lambda seen: answer(seen, seen.honest()))) as stub:
        result = run(stub.url, floor="process", timeout=5, trace_id="t-1")
    assert (result.text, result.isolation) == ("42\n", "process")
    assert stub.seen[0].header("authorization") == f"Bearer {TOKEN}"
    assert stub.seen[0].head.startswith("POST /v1/runs HTTP/1.1")
    assert result.request_id == stub.seen[0].request_id


ANSWERS: dict[str, tuple[Callable[[Seen], bytes], type[errors.PlimsollError]]] = {
    "drops the id": (lambda s: answer(s, s.honest(), request_id=""), errors.AnswerNotBound),
    "another id": (lambda s: answer(s, s.honest(), request_id="f" * 32), errors.AnswerNotBound),
    "alters bytes": (
        lambda s: answer(s, honest.dumped(s.honest()).replace(b"42\\n", b"43\\n")),
        errors.RecordMismatch,
    ),
    "no record": (lambda s: answer(s, s.honest() | {"record": None}), errors.NoRecord),
    "record of another run": (
        lambda s: answer(s, s.honest() | {"record": honest.run_answer()["record"]}),
        errors.RecordMismatch,
    ),
    "record of another version": (
        lambda s: answer(s, honest.resealed(s.honest(), version=3)),
        errors.RecordVersion,
    ),
    "low tier": (lambda s: answer(s, s.honest(tier="none")), errors.IsolationEvidenceMismatch),
    "unknown tier": (lambda s: answer(s, s.honest(tier="fort")), errors.IsolationEvidenceMismatch),
    "wrong kind": (
        lambda s: answer(s, honest.dumped(s.honest()).replace(b'"kind": "javascript"', b'"kind": "python"')),
        errors.ResultKindMismatch,
    ),
    "old start": (
        lambda s: answer(s, honest.resealed(s.honest(), started_unix_ms=honest.NOW)),
        errors.StaleAnswer,
    ),
    "duplicate keys": (
        lambda s: answer(s, honest.dumped(s.honest())[:-1] + b', "isolation": "vm"}'),
        errors.MalformedResponse,
    ),
    "NaN": (
        lambda s: answer(s, honest.dumped(s.honest()).replace(b'"start_ms": 1', b'"start_ms": NaN')),
        errors.MalformedResponse,
    ),
    "deep": (lambda s: answer(s, b"[" * 200_000 + b"]" * 200_000), errors.MalformedResponse),
    "not json": (lambda s: answer(s, b"<html>", content_type="text/html"), errors.MalformedResponse),
    "gzip": (
        lambda s: answer(s, gzip.compress(honest.dumped(s.honest())), headers=("content-encoding: gzip",)),
        errors.MalformedResponse,
    ),
    "redirect": (
        lambda s: answer(s, b"", status=307, headers=("location: /v1/runs",)),
        errors.RedirectRefused,
    ),
    "oversize by header": (
        lambda s: answer(s, b"").replace(b"content-length: 0", b"content-length: 99999999"),
        errors.ResponseTooLarge,
    ),
    "cut in the body": (lambda s: answer(s, s.honest())[:-50], errors.TransportError),
    "cut in the head": (lambda _: b"HTTP/1.1 200 OK\r\ncontent-ty", errors.TransportError),
    "no answer": (lambda _: b"", errors.TransportError),
    "no http": (lambda _: b"SSH-2.0-OpenSSH\r\n", errors.TransportError),
    "two lengths": (
        lambda s: answer(s, s.honest(), headers=("content-length: 5",)),
        errors.TransportError,
    ),
    "informational for ever": (lambda _: b"HTTP/1.1 102 Processing\r\n\r\n" * 3, errors.TransportError),
    "internal error": (
        lambda s: answer(s, honest.problem("internal", 500, "capacity"), status=500),
        errors.ServiceError,
    ),
    "may have run": (
        lambda s: answer(s, honest.problem("may_have_run", 502, None, run_id="b" * 32), status=502),
        errors.MayHaveRun,
    ),
    "a mark of somebody else": (
        lambda s: answer(s, honest.problem("capacity", 429, "capacity"), status=429, request_id="f" * 32),
        errors.Capacity,
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_hostile_answer_is_refused_unmarked_and_sent_once(name: str, run: Run) -> None:
    make, kind = ANSWERS[name]
    error, stub = refusal(sends(make), run, floor="process")
    assert type(error) is kind
    assert error.not_dispatched is None
    assert len(stub.seen) == 1


def test_a_marked_refusal_is_marked_and_not_retried(run: Run) -> None:
    body = honest.problem("capacity", 429, "capacity")
    behaviour = sends(lambda s: answer(s, body, status=429, headers=("retry-after: 3",)))
    error, stub = refusal(behaviour, run)
    assert isinstance(error, errors.Capacity)
    assert (error.not_dispatched, error.retry_after) == (Reason.CAPACITY, 3)
    assert len(stub.seen) == 1


def test_a_replayed_answer_is_refused_even_under_the_fresh_id(run: Run) -> None:
    kept: list[dict[str, Any]] = []

    def make(seen: Seen) -> bytes:
        kept.append(seen.honest())
        return answer(seen, kept[0])

    error, stub = refusal(sends(make), run, times=2)
    assert type(error) is errors.StaleAnswer
    assert len(stub.seen) == 2


def test_an_old_answer_is_refused_by_its_times(run: Run) -> None:
    old = honest.NOW - 86_400_000

    def make(seen: Seen) -> bytes:
        return answer(seen, honest.run_answer(honest.request_of(seen.body), now=old))

    error, _ = refusal(sends(make), run)
    assert type(error) is errors.StaleAnswer
    assert error.result is not None


def test_oversize_by_count_is_cut_off(run: Run) -> None:
    sent = 0

    def flood(seen: Seen, connection: socket.socket) -> None:
        nonlocal sent
        head = f"HTTP/1.1 200 X\r\ncontent-type: application/json\r\nplimsoll-request-id: {seen.request_id}\r\n\r\n"
        connection.sendall(head.encode())
        for _ in range(200):
            sent += 1
            connection.sendall(b" " * 1024 * 1024)

    error, _ = refusal(flood, run)
    assert type(error) is errors.ResponseTooLarge
    assert sent < 60


@pytest.mark.parametrize(
    "data",
    [
        lambda seen: answer(seen, seen.honest()),
        lambda _: b"HTTP/1.1 200 OK\r\n" + b"x-more: 1\r\n" * 1000,
        lambda seen: answer(seen, b"").replace(b"content-length: 0", b"content-length: 9999") + b" " * 9999,
    ],
    ids=["answer", "headers", "body"],
)
def test_a_trickle_ends_at_the_deadline_of_the_whole_exchange(
    data: Callable[[Seen], bytes], run: Run
) -> None:
    start = time.monotonic()
    error, _ = refusal(trickle(data, 0.02), run, deadline=0.5)
    assert type(error) is errors.RequestTimeout
    assert error.not_dispatched is None
    assert time.monotonic() - start < 30


def test_silence_ends_at_the_deadline(run: Run) -> None:
    error, _ = refusal(lambda _, connection: time.sleep(1), run, deadline=0.4)
    assert type(error) is errors.RequestTimeout
    assert error.not_dispatched is None


def test_a_reset_after_sending_is_not_marked(run: Run) -> None:
    def reset(_: Seen, connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    error, _ = refusal(reset, run)
    assert type(error) is errors.TransportError
    assert error.not_dispatched is None


def test_15_a_refused_connection_is_marked(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(errors.TransportError) as caught:
        run(f"http://127.0.0.1:{port}")
    assert caught.value.not_dispatched is Reason.ENVIRONMENT
    assert f"127.0.0.1:{port} could not be reached (refused)" in str(caught.value)


def test_15_a_failed_tls_handshake_is_marked(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            listener.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(errors.TransportError) as caught:
            run(f"https://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()
    assert caught.value.not_dispatched is Reason.ENVIRONMENT


def test_15_a_stalled_tls_handshake_is_marked(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(errors.TransportError) as caught:
        run(f"https://127.0.0.1:{listener.getsockname()[1]}", deadline=0.4)
    assert caught.value.not_dispatched is Reason.ENVIRONMENT


def test_an_early_refusal_of_a_large_body_keeps_its_mark(run: Run) -> None:
    body = honest.problem("body_too_large", 413, "request")
    error, _ = refusal(sends(lambda s: answer(s, body, status=413)), run)
    assert (type(error), error.not_dispatched) == (errors.InvalidRequest, Reason.REQUEST)


def test_proxies_and_netrc_of_the_environment_are_not_used(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving(sends(lambda seen: answer(seen, seen.honest()))) as stub:
        assert run(stub.url).exit_code == 0


def test_a_cookie_is_not_kept(run: Run) -> None:
    serial = iter("123456789")

    def make(seen: Seen) -> bytes:
        instance = "wasm-vm:" + next(serial) * 32
        return answer(seen, seen.honest(instance=instance), headers=("set-cookie: a=b; Path=/",))

    with serving(sends(make)) as stub:
        run(stub.url, times=3)
    assert len(stub.seen) == 3
    assert all(seen.header("cookie") == "" for seen in stub.seen)


async def test_13_a_call_cancelled_before_sending_sends_nothing() -> None:
    with serving(sends(lambda seen: answer(seen, seen.honest()))) as stub:
        async with plimsoll.AsyncClient(stub.url, TOKEN) as client:
            task = asyncio.create_task(client.run_javascript(CODE))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
    assert caught.value.not_dispatched is Reason.REQUEST  # type: ignore[attr-defined]
    assert stub.seen == []


async def test_a_call_cancelled_after_sending_cuts_the_connection_and_is_not_marked() -> None:
    arrived, cut = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def behave(_: Seen, connection: socket.socket) -> None:
        loop.call_soon_threadsafe(arrived.set)
        if connection.recv(1) == b"":
            cut.set()

    with serving(behave) as stub:
        async with plimsoll.AsyncClient(stub.url, TOKEN) as client:
            task = asyncio.create_task(client.run_javascript(CODE))
            await arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert await asyncio.to_thread(cut.wait, 5)
    assert caught.value.not_dispatched is None  # type: ignore[attr-defined]
    assert len(stub.seen) == 1


async def test_many_calls_share_one_client() -> None:
    serial = iter(range(1000))

    def make(seen: Seen) -> bytes:
        return answer(seen, seen.honest(instance=f"wasm-vm:{next(serial):032x}"))

    with serving(sends(make)) as stub:
        async with plimsoll.AsyncClient(stub.url, TOKEN) as client:
            runs = await asyncio.gather(*(client.run_javascript(CODE) for _ in range(40)))
    assert len({run.request_id for run in runs}) == 40
