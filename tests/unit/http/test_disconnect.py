"""A caller that hangs up is noticed soon, also when it did before anybody watched."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

from app.http.disconnect import NOTICE_S, on_disconnect


class Caller:
    """The receiving side of one request; `asked` counts who listened."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.asked = 0

    async def receive(self) -> MutableMapping[str, Any]:
        self.asked += 1
        await self.left.wait()
        return {"type": "http.disconnect"}


async def told(caller: Caller, seconds: float) -> int:
    """How often it was said that the caller went away, while an answer took so long."""
    times: list[None] = []
    with on_disconnect(caller.receive, lambda: times.append(None)):
        await asyncio.sleep(seconds)
    return len(times)


async def test_a_caller_that_left_at_once_is_noticed() -> None:
    caller = Caller()
    caller.left.set()
    assert await told(caller, 5 * NOTICE_S) == 1


async def test_a_caller_that_leaves_later_is_noticed() -> None:
    caller = Caller()
    asyncio.get_running_loop().call_later(3 * NOTICE_S, caller.left.set)
    assert await told(caller, 6 * NOTICE_S) == 1


async def test_a_caller_that_stays_is_not_told_of() -> None:
    assert await told(Caller(), 3 * NOTICE_S) == 0


async def test_nobody_watches_while_a_short_answer_is_made() -> None:
    caller = Caller()
    assert await told(caller, 0) == 0
    await asyncio.sleep(3 * NOTICE_S)
    assert caller.asked == 0


async def test_leaving_after_the_answer_is_nobodys_business() -> None:
    caller = Caller()
    assert await told(caller, 3 * NOTICE_S) == 0
    caller.left.set()
    await asyncio.sleep(0)
    assert caller.asked == 1
