"""Bytes of bodies are counted for one caller and for all, and given back however the reading ends."""

import asyncio
import contextlib

import pytest
from starlette.types import Message

from app.http.answers import read_body
from app.http.budget import NO_ROOM, Budget


def test_one_caller_cannot_take_it_all_and_all_cannot_take_more() -> None:
    budget = Budget(per_caller=10, total=15)
    with budget.open("a") as first, budget.open("a") as second, budget.open("b") as other:
        assert first(6)
        assert not second(5)
        assert second(4)
        assert other(5)
        assert not other(1)
        assert budget.held == 15
    assert budget.held == 0
    with budget.open("b") as take:
        assert take(10)


async def test_everything_is_given_back_however_a_body_ends() -> None:
    budget = Budget(per_caller=10, total=10)

    async def read(*parts: Message) -> object:
        waiting = list(parts)

        async def receive() -> Message:
            if not waiting:
                await asyncio.sleep(10)
            return waiting.pop(0)

        with budget.open("a") as take:
            return await read_body(receive, 8, take)

    def part(size: int, *, more: bool) -> Message:
        return {"type": "http.request", "body": b"x" * size, "more_body": more}

    assert await read(part(5, more=True), part(3, more=False)) == b"x" * 8
    await read(part(5, more=True), part(5, more=True))  # over its limit
    await read(part(5, more=True), {"type": "http.disconnect"})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await read(part(5, more=True))
    assert budget.held == 0
    with budget.open("a") as take:
        assert take(6)
        assert await read(part(5, more=False)) is NO_ROOM
    with pytest.raises(ZeroDivisionError), budget.open("a") as take:
        take(1 // 0)
    assert budget.held == 0
