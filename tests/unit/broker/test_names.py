"""Names are asked for once at a time, for all who wait for them."""

import asyncio
import socket

import pytest

from broker.names import Names


class Server:
    """A name server that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

    async def __call__(self, host: str, _: int) -> list[str]:
        self.asked.append(host)
        return await asyncio.shield(self.answers)


async def settled(*tasks: asyncio.Task[object]) -> None:
    """Each has run until it waits."""
    for _ in range(3):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)


async def test_all_who_wait_for_a_name_wait_for_one_question() -> None:
    server = Server()
    names = Names(server)
    waiting = [asyncio.create_task(names("silent.example", 443)) for _ in range(20)]
    other = asyncio.create_task(names("other.example", 443))
    await settled()
    server.answers.set_result(["192.0.2.1"])
    assert await asyncio.gather(*waiting, other) == [["192.0.2.1"]] * 21
    assert server.asked == ["silent.example", "other.example"]


async def test_nothing_is_kept_for_who_asks_later() -> None:
    server = Server()
    names = Names(server)
    server.answers.set_result(["192.0.2.1"])
    assert [await names("a.example", 443) for _ in range(2)] == [["192.0.2.1"]] * 2
    assert server.asked == ["a.example"] * 2


async def test_whoever_stops_waiting_ends_nobody_elses_question() -> None:
    server = Server()
    names = Names(server)
    first, second = (asyncio.create_task(names("a.example", 443)) for _ in range(2))
    await settled(first, second)
    first.cancel()
    await settled(second)
    server.answers.set_result(["192.0.2.1"])
    assert await second == ["192.0.2.1"]
    assert first.cancelled()


async def test_all_are_told_of_a_failure_and_the_next_one_asks_again() -> None:
    server = Server()
    names = Names(server)
    waiting = [asyncio.create_task(names("a.example", 443)) for _ in range(2)]
    await settled(*waiting)
    server.answers.set_exception(socket.gaierror())
    for each in waiting:
        with pytest.raises(OSError):  # noqa: PT011  # a resolver's own kind has no text to look for
            await each
    with pytest.raises(OSError):  # noqa: PT011  # as above
        await names("a.example", 443)
    assert server.asked == ["a.example"] * 2
