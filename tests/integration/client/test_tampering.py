"""Both clients against the real service with a tampering proxy between: plain answers, streams, keys, and started runs.

Every request did reach the service, so nothing here may be marked.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import plimsoll
from plimsoll.client import errors
from tests.integration.client.conftest import Served
from tests.support import tamper
from tests.support.tamper import Passage, Tamper

pytestmark = pytest.mark.component("wasm")

CODE = "console.log('first'); console.error('second')"
DEADLINE_S = 2.0

Do = Callable[..., None]


def run_sync(url: str, token: str, *, way: str, times: int = 1, **how: Any) -> None:
    with plimsoll.Client(url, token, deadline=DEADLINE_S) as client:
        for _ in range(times):
            match way:
                case "run":
                    client.run_javascript(CODE, **how)
                case "stream":
                    with client.stream_javascript(CODE, **how) as events:
                        assert len(list(events)) >= 2
                case _:
                    client.start_javascript(CODE, **how).wait(DEADLINE_S)


def run_async(url: str, token: str, *, way: str, times: int = 1, **how: Any) -> None:
    async def main() -> None:
        async with plimsoll.AsyncClient(url, token, deadline=DEADLINE_S) as client:
            for _ in range(times):
                match way:
                    case "run":
                        await client.run_javascript(CODE, **how)
                    case "stream":
                        async with client.stream_javascript(CODE, **how) as events:
                            assert len([event async for event in events]) >= 2
                    case _:
                        handle = await client.start_javascript(CODE, **how)
                        await handle.wait(DEADLINE_S)

    asyncio.run(main())


@pytest.fixture(params=[run_sync, run_async], ids=["sync", "async"])
def do(request: pytest.FixtureRequest) -> Do:
    chosen: Do = request.param
    return chosen


def refused(do: Do, served: Served, by: Tamper, **how: Any) -> errors.PlimsollError:
    with tamper.proxy(served.url, by) as between, pytest.raises(errors.PlimsollError) as caught:
        do(between.url, served.token, **how)
    assert caught.value.not_dispatched is None
    assert served.token not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("way", ["run", "stream", "start"])
def test_an_honest_proxy_is_no_hindrance(way: str, do: Do, served: Served) -> None:
    with tamper.proxy(served.url, tamper.honest) as between:
        do(between.url, served.token, way=way, times=2, floor="process")


def pieces(body: bytes) -> list[bytes]:
    """The events of a stream, and comments."""
    return [part for part in re.split(rb"(?<=\n\n)", body) if part]


def rearranges(change: Callable[[list[bytes]], list[bytes]]) -> Tamper:
    """The stream's events in another arrangement."""

    def by(passage: Passage) -> None:
        events = [part for part in pieces(passage.answer.body) if not part.startswith(b":")]
        passage.send(replace(passage.answer, body=b"".join(change(events))))

    return by


COMMON: dict[str, tuple[Callable[[], Tamper], type[errors.PlimsollError]]] = {
    "drops the id": (lambda: tamper.drops_id, errors.AnswerNotBound),
    "redirects": (lambda: tamper.redirects, errors.RedirectRefused),
    "trickles": (lambda: tamper.trickles(0.05), errors.RequestTimeout),
}


@pytest.mark.parametrize("way", ["run", "stream", "start"])
@pytest.mark.parametrize("name", COMMON)
def test_whatever_was_asked_these_are_caught(name: str, way: str, do: Do, served: Served) -> None:
    make, kind = COMMON[name]
    assert type(refused(do, served, make(), way=way)) is kind


STREAMS: dict[str, tuple[Callable[[], Tamper], type[errors.PlimsollError]]] = {
    "altered chunk": (lambda: tamper.alters(rb'"data": "first', b'"data": "worst'), errors.RecordMismatch),
    "altered everywhere": (lambda: tamper.alters(rb"first", b"worst"), errors.RecordMismatch),
    "altered wall": (
        lambda: tamper.alters(rb'"isolation": ?"process"', b'"isolation":"vm"'),
        errors.RecordMismatch,
    ),
    "dropped chunk": (lambda: rearranges(lambda e: e[:1] + e[2:]), errors.RecordMismatch),
    "duplicated chunk": (lambda: rearranges(lambda e: e[:2] + e[1:]), errors.RecordMismatch),
    "two results": (lambda: rearranges(lambda e: [*e, e[-1]]), errors.MalformedResponse),
    "result first": (lambda: rearranges(lambda e: [e[-1], *e[:-1]]), errors.MalformedResponse),
    "result alone": (lambda: rearranges(lambda e: e[-1:]), errors.MalformedResponse),
    "no result": (lambda: rearranges(lambda e: e[:-1]), errors.StreamCut),
    "cut": (lambda: tamper.cuts, errors.StreamCut),
    "replayed": (tamper.replays, errors.AnswerNotBound),
    "replayed under the fresh id": (lambda: tamper.replays(rebound=True), errors.StaleAnswer),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_was_tampered_with_is_caught(name: str, do: Do, served: Served) -> None:
    make, kind = STREAMS[name]
    times = 2 if name.startswith("replayed") else 1
    assert type(refused(do, served, make(), way="stream", times=times)) is kind


PLAIN: dict[str, tuple[Callable[[], Tamper], type[errors.PlimsollError]]] = {
    "altered": (lambda: tamper.alters(rb"first", b"worst"), errors.RecordMismatch),
    "cut": (lambda: tamper.cuts, errors.TransportError),
    "replayed": (tamper.replays, errors.AnswerNotBound),
    "replayed under the fresh id": (lambda: tamper.replays(rebound=True), errors.StaleAnswer),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_answer_that_was_tampered_with_is_caught(name: str, do: Do, served: Served) -> None:
    make, kind = PLAIN[name]
    assert type(refused(do, served, make(), way="run", times=2)) is kind


def only_the_question(by: Tamper) -> Tamper:
    """Tampers with what follows the start."""

    def chosen(passage: Passage) -> None:
        (by if passage.request.method == "GET" else tamper.honest)(passage)

    return chosen


def nothing_ran(passage: Passage) -> None:
    """The end of the run becomes a proof that nothing ran; its record is left out."""
    state = b'"state":"not_dispatched","not_dispatched":{"reason":"capacity"},"x":"finished"'
    body = passage.answer.body.replace(b'"state":"finished"', state)
    passage.send(tamper.Answer(200, passage.answer.headers, body))


ENDS: dict[str, tuple[Callable[[], Tamper], type[errors.PlimsollError]]] = {
    "altered": (lambda: tamper.alters(rb"first", b"worst"), errors.RecordMismatch),
    "another run": (
        lambda: tamper.alters(rb'"id":"[0-9a-f]{32}"', b'"id":"' + b"b" * 32 + b'"'),
        errors.AnswerNotBound,
    ),
    "nothing ran": (lambda: nothing_ran, errors.MalformedResponse),
    "cut": (lambda: tamper.cuts, errors.TransportError),
    "drops the id": (lambda: tamper.drops_id, errors.AnswerNotBound),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_end_of_a_started_run_that_was_tampered_with_is_caught(name: str, do: Do, served: Served) -> None:
    make, kind = ENDS[name]
    assert type(refused(do, served, only_the_question(make()), way="start")) is kind


def test_another_keys_old_answer_is_caught(served: Served) -> None:
    between_keys = tamper.replays(rebound=True)
    with (
        tamper.proxy(served.url, between_keys) as between,
        plimsoll.Client(between.url, served.token) as client,
    ):
        first = client.run_javascript(CODE, idempotency_key="tamper-1")
        assert client.run_javascript(CODE, idempotency_key="tamper-1").record == first.record
        with pytest.raises(errors.StaleAnswer) as caught:
            client.run_javascript(CODE, idempotency_key="tamper-2")
    assert caught.value.not_dispatched is None


def test_swapped_streams_are_caught(served: Served) -> None:
    async def main() -> list[Any]:
        async def read(client: plimsoll.AsyncClient, code: str) -> plimsoll.Run:
            async with client.stream_javascript(code) as events:
                async for _ in events:
                    pass
                return events.result

        with tamper.proxy(served.url, tamper.swaps(rebound=True)) as between:
            async with plimsoll.AsyncClient(between.url, served.token) as client:
                both = (read(client, f"console.log({number})") for number in range(2))
                return await asyncio.gather(*both, return_exceptions=True)

    found = asyncio.run(main())
    assert [type(error) for error in found] == [errors.RecordMismatch] * 2
    assert [error.not_dispatched for error in found] == [None, None]
