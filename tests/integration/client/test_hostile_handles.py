"""Both clients asking a service that does everything wrong for a run that was started: one error is marked, no other."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import plimsoll
from plimsoll.client import errors
from plimsoll.contract.refusals import Reason
from tests.integration.client.stub import Behaviour, Seen, answer, sends, serving
from tests.unit.plimsoll import honest

CODE = "console.log(6 * 7)"

Later = Callable[[list[Seen]], bytes]
Ask = Callable[..., Any]


def ask_sync(url: str, *, what: str = "wait", deadline: float = 10, seconds: float | None = None) -> Any:
    with plimsoll.Client(url, "t", deadline=deadline) as client:
        handle = client.start_javascript(CODE)
        return handle.wait(seconds) if what == "wait" else getattr(handle, what)()


def ask_async(url: str, *, what: str = "wait", deadline: float = 10, seconds: float | None = None) -> Any:
    async def main() -> Any:
        async with plimsoll.AsyncClient(url, "t", deadline=deadline) as client:
            handle = await client.start_javascript(CODE)
            return await (handle.wait(seconds) if what == "wait" else getattr(handle, what)())

    return asyncio.run(main())


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    chosen: Ask = request.param
    return chosen


def starts_and_then(later: Later) -> Behaviour:
    """The first request starts a run; `later` answers the others, told of all requests so far."""
    kept: list[Seen] = []

    def make(seen: Seen) -> bytes:
        kept.append(seen)
        if len(kept) == 1:
            return answer(seen, honest.pending(seen.honest()), status=202)
        return later(kept)

    return sends(make)


def done(kept: list[Seen], **changed: Any) -> dict[str, Any]:
    """The run as kept, as an honest service would show it, and what is changed."""
    true = kept[0].honest()
    return honest.view(true) | {"result": true["result"]} | changed


def test_waiting_goes_on_until_the_run_ended(ask: Ask) -> None:
    def later(kept: list[Seen]) -> bytes:
        view = done(kept) if len(kept) == 4 else honest.pending(kept[0].honest())
        return answer(kept[-1], view)

    with serving(starts_and_then(later)) as stub:
        assert ask(stub.url).text == "42\n"
    assert stub.seen[0].header("prefer") == "respond-async"
    targets = [seen.head.split(" ")[1] for seen in stub.seen[1:]]
    assert targets == [f"/v1/runs/{'a' * 32}?wait=5", *[f"/v1/runs/{'a' * 32}?wait=5"] * 2]
    assert len({seen.request_id for seen in stub.seen}) == 4


def test_patience_ends_in_pending(ask: Ask) -> None:
    behaviour = starts_and_then(lambda kept: answer(kept[-1], honest.pending(kept[0].honest())))
    start = time.monotonic()
    with serving(behaviour) as stub, pytest.raises(errors.RunPending) as caught:
        ask(stub.url, seconds=0.5)
    assert (caught.value.run_id, caught.value.not_dispatched) == ("a" * 32, None)
    assert 0.4 < time.monotonic() - start < 30
    assert 1 < len(stub.seen) < 10


def nothing(kept: list[Seen], **changed: Any) -> dict[str, Any]:
    state = {"state": "not_dispatched", "settled": True, "not_dispatched": {"reason": "capacity"}}
    return honest.pending(kept[0].honest()) | state | changed


def test_nothing_ran_is_marked(ask: Ask) -> None:
    with serving(starts_and_then(lambda kept: answer(kept[-1], nothing(kept)))) as stub:
        with pytest.raises(errors.Capacity) as caught:
            ask(stub.url)
        assert (caught.value.not_dispatched, caught.value.run_id) == (Reason.CAPACITY, "a" * 32)


LATER: dict[str, tuple[Later, type[errors.PlimsollError]]] = {
    "nothing ran, without the id": (
        lambda k: answer(k[-1], nothing(k), request_id=""),
        errors.AnswerNotBound,
    ),
    "nothing ran, of the start": (
        lambda k: answer(k[-1], nothing(k), request_id=k[0].request_id),
        errors.AnswerNotBound,
    ),
    "nothing of another run ran": (lambda k: answer(k[-1], nothing(k, id="b" * 32)), errors.AnswerNotBound),
    "no id": (lambda k: answer(k[-1], done(k), request_id=""), errors.AnswerNotBound),
    "another run": (lambda k: answer(k[-1], done(k, id="b" * 32)), errors.AnswerNotBound),
    "altered": (
        lambda k: answer(k[-1], honest.dumped(done(k)).replace(b"42\\n", b"43\\n")),
        errors.RecordMismatch,
    ),
    "old": (
        lambda k: answer(
            k[-1],
            honest.view(honest.run_answer(honest.request_of(k[0].body), now=honest.NOW))
            | {"result": honest.run_answer()["result"]},
        ),
        errors.StaleAnswer,
    ),
    "no result": (lambda k: answer(k[-1], done(k, result=None)), errors.NoResult),
    "no record": (lambda k: answer(k[-1], done(k, record=None)), errors.NoRecord),
    "may have run": (lambda k: answer(k[-1], done(k, state="may_have_run")), errors.MayHaveRun),
    "a marked refusal of the question": (
        lambda k: answer(k[-1], honest.problem("capacity", 429, "capacity"), status=429),
        errors.Capacity,
    ),
    "unknown": (
        lambda k: answer(k[-1], honest.problem("not_found", 404, "request"), status=404),
        errors.NotFound,
    ),
    "redirect": (lambda k: answer(k[-1], b"", status=307, headers=("location: /",)), errors.RedirectRefused),
    "cut": (lambda k: answer(k[-1], done(k))[:-30], errors.TransportError),
}


@pytest.mark.parametrize("name", LATER)
def test_a_hostile_end_is_refused_and_never_marked(name: str, ask: Ask) -> None:
    later, kind = LATER[name]
    with serving(starts_and_then(later)) as stub, pytest.raises(errors.PlimsollError) as caught:
        ask(stub.url)
    assert type(caught.value) is kind
    assert caught.value.not_dispatched is None
    assert [seen.head.split(" ")[0] for seen in stub.seen] == ["POST", "GET"]


@pytest.mark.parametrize("what", ["wait", "cancel", "view"])
def test_a_refused_connection_says_nothing_about_the_run(what: str, ask: Ask) -> None:
    def one_connection(listener: socket.socket) -> None:
        with listener:
            connection, _ = listener.accept()
        with connection:
            data = connection.recv(65536)
            seen = Seen(data.partition(b"\r\n\r\n")[0].decode(), b"")
            while b"}" not in data:
                data += connection.recv(65536)
            connection.sendall(answer(seen, honest.pending(honest.run_answer()), status=202))

    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread = threading.Thread(target=one_connection, args=(listener,))
    thread.start()
    with pytest.raises(errors.TransportError) as caught:
        ask(url, what=what)
    thread.join()
    assert caught.value.not_dispatched is None


def test_cancelling_and_looking(ask: Ask) -> None:
    said = {"id": "a" * 32, "state": "finished", "outcome": "cancelled"}
    with serving(starts_and_then(lambda kept: answer(kept[-1], said))) as stub:
        assert ask(stub.url, what="cancel") == "cancelled"
    assert stub.seen[1].head.startswith(f"POST /v1/runs/{'a' * 32}/cancel ")
    with serving(starts_and_then(lambda kept: answer(kept[-1], honest.pending(kept[0].honest())))) as stub:
        assert ask(stub.url, what="view").state == "starting"


async def test_a_cancelled_wait_says_nothing_about_the_run() -> None:
    behaviour = starts_and_then(lambda kept: answer(kept[-1], honest.pending(kept[0].honest())))
    with serving(behaviour) as stub:
        async with plimsoll.AsyncClient(stub.url, "t") as client:
            handle = await client.start_javascript(CODE)
            task = asyncio.create_task(handle.wait())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
    assert caught.value.not_dispatched is None  # type: ignore[attr-defined]
    assert len(stub.seen) == 1


def test_a_run_without_its_handle() -> None:
    behaviour = starts_and_then(lambda kept: answer(kept[-1], done(kept)))
    with serving(behaviour) as stub, plimsoll.Client(stub.url, "t") as client:
        handle = client.start_javascript(CODE)
        assert "hunter2" not in repr(handle)
        assert client.wait_run(handle.id).exit_code == 0
        with pytest.raises(errors.InvalidRequest, match="timeout"):
            handle.wait(-1)
