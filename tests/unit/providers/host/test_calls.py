"""The host's side of a run's calls, against a broker on a real Unix socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.contract.grants import IN_FLIGHT, MESSAGE_BYTES
from plimsoll.contract.worker import Lease
from providers.host import broker as client
from providers.host.broker import Broker, Place
from providers.host.calls import Calls
from tests.support.brokers import LARGE, FakeBroker, fake_broker

RUN = "1" * 32


def message(path: str, **more: Any) -> bytes:
    return json.dumps({"method": "GET", "path": path, **more}).encode()


def code(answer: bytes) -> str:
    return str(json.loads(answer)["error"]["code"])


async def asked(calls: Calls, question: bytes) -> bytes:
    """Its answer, handed back at once."""
    async with calls.call(question) as answer:
        return answer


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeBroker]:
    async with fake_broker(tmp_path) as made:
        yield made


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    made = Broker()
    yield made
    made.close()


async def test_an_answer_is_handed_back_as_it_came(fake: FakeBroker, broker: Broker) -> None:
    question = message("/echo", body="größer")
    async with Calls(broker, fake.lease(RUN), RUN) as calls:
        answer = await asked(calls, question)
    assert fake.messages == [question]
    assert json.loads(json.loads(answer)["body"]) == json.loads(question)


async def test_connections_are_kept_and_shared_by_runs(fake: FakeBroker, broker: Broker) -> None:
    other = "2" * 32
    async with Calls(broker, fake.lease(RUN), RUN) as one, Calls(broker, fake.lease(other), other) as two:
        for calls in (one, two) * 5:
            await asked(calls, message("/text"))
    assert (fake.connections, fake.runs) == (1, [RUN, other] * 5)


async def test_many_calls_at_once_are_all_answered_and_only_so_many_are_under_way(
    fake: FakeBroker, broker: Broker
) -> None:
    async with Calls(broker, fake.lease(RUN), RUN) as calls:
        answers = await asyncio.gather(*(asked(calls, message("/echo", body=str(n))) for n in range(200)))
    bodies = [json.loads(json.loads(answer)["body"])["body"] for answer in answers]
    assert bodies == [str(n) for n in range(200)]
    assert fake.most_under_way <= IN_FLIGHT


async def test_a_large_answer_comes_whole(fake: FakeBroker, broker: Broker) -> None:
    async with Calls(broker, fake.lease(RUN), RUN) as calls:
        assert json.loads(await asked(calls, message("/large")))["body"] == "x" * LARGE


async def test_of_many_large_answers_one_is_here_until_it_was_handed_back_and_small_ones_pass_it(
    fake: FakeBroker, broker: Broker
) -> None:
    here = most = 0

    async def one(calls: Calls) -> None:
        nonlocal here, most
        async with calls.call(message("/large")) as answer:
            here += 1
            most = max(most, here)
            assert json.loads(await asked(calls, message("/text")))["status"] == 200
            await asyncio.sleep(0.01)
            here -= 1
            assert len(answer) > LARGE

    async with Calls(broker, fake.lease(RUN), RUN) as calls, asyncio.timeout(20):
        await asyncio.gather(*(one(calls) for _ in range(12)))
    assert most == 1


async def test_a_large_answer_that_is_not_handed_back_ends_with_its_run(
    fake: FakeBroker, broker: Broker
) -> None:
    async def keep(calls: Calls) -> None:
        async with calls.call(message("/large")):
            await asyncio.Event().wait()

    async with Calls(broker, fake.lease(RUN), RUN) as calls:
        keeping = [asyncio.create_task(keep(calls)) for _ in range(3)]
        async with asyncio.timeout(5):
            while not calls._large.locked():
                await asyncio.sleep(0.01)
    for task in keeping:
        task.cancel()
    await asyncio.gather(*keeping, return_exceptions=True)
    assert not calls._large.locked()


async def test_an_answer_beyond_every_bound_is_a_failure(
    fake: FakeBroker, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_BYTES", 1000)
    async with Calls(broker, fake.lease(RUN), RUN) as calls:
        assert code(await asked(calls, message("/large"))) == "upstream"
        assert json.loads(await asked(calls, message("/text")))["status"] == 200


async def test_a_message_over_the_bound_is_not_sent(fake: FakeBroker, broker: Broker) -> None:
    async with Calls(broker, fake.lease(RUN), RUN) as calls:
        assert code(await asked(calls, b"x" * (MESSAGE_BYTES + 1))) == "too_large"
    assert fake.messages == []


@pytest.mark.parametrize("secret", ["another", "secret-of-another-run"])
async def test_a_pass_of_no_run_or_of_another_is_no_grant(
    fake: FakeBroker, broker: Broker, secret: str
) -> None:
    fake.lease("3" * 32, "secret-of-another-run")
    async with Calls(broker, Lease(fake.url, "worker-1", secret), RUN) as calls:
        assert code(await asked(calls, message("/text"))) == "no_grant"


@pytest.mark.parametrize(
    "url", ["unix:///nowhere/socket", "https://127.0.0.1", "unix://host/x", "x", "http://"]
)
async def test_a_broker_that_is_not_there_fails_the_call(broker: Broker, url: str) -> None:
    async with Calls(broker, Lease(url, "worker-1", "secret"), RUN) as calls:
        assert code(await asked(calls, message("/text"))) == "upstream"


async def test_a_broker_that_goes_away_fails_the_call_and_is_not_asked_again(
    fake: FakeBroker, broker: Broker, tmp_path: Path
) -> None:
    times = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal times
        times += 1
        await reader.read(1 << 16)
        writer.close()

    server = await asyncio.start_unix_server(hang_up, str(tmp_path / "rude"))
    async with Calls(broker, Lease(f"unix://{tmp_path}/rude", "worker-1", "s"), RUN) as calls:
        assert code(await asked(calls, message("/text"))) == "upstream"
    server.close()
    assert times == 1


async def test_a_silent_broker_fails_the_call_in_time(
    fake: FakeBroker, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_S", 0.05)
    async with Calls(broker, fake.lease(RUN), RUN) as calls:
        assert code(await asked(calls, message("/wait"))) == "upstream"


async def test_at_the_end_of_the_run_calls_are_cancelled_and_later_ones_refused(
    fake: FakeBroker, broker: Broker
) -> None:
    async with Calls(broker, fake.lease(RUN), RUN) as calls:
        waiting = [asyncio.create_task(asked(calls, message("/wait"))) for _ in range(IN_FLIGHT + 4)]
        async with asyncio.timeout(5):
            while fake.under_way < IN_FLIGHT:
                await fake.asked.wait()
                await asyncio.sleep(0)
    await asyncio.gather(*waiting, return_exceptions=True)
    assert all(task.cancelled() for task in waiting)
    assert code(await asked(calls, message("/text"))) == "no_grant"
    async with asyncio.timeout(5):
        while fake.under_way:
            await asyncio.sleep(0.01)
    assert len(fake.messages) == IN_FLIGHT == fake.cancelled


async def test_the_pass_is_in_no_repr(fake: FakeBroker, broker: Broker) -> None:
    lease = fake.lease(RUN, "canary")
    calls = Calls(broker, lease, RUN)
    assert "canary" not in repr(lease) + repr(calls) + repr(broker) + repr(calls.call)


@pytest.mark.parametrize(
    ("url", "authority"),
    [("unix:///run/x", "localhost"), ("http://127.0.0.1:9", "127.0.0.1:9"), ("http://[::1]:9", "[::1]:9")],
)
def test_a_place_says_its_authority(url: str, authority: str) -> None:
    assert Place.of(url).authority == authority
