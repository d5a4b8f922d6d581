"""What could not be written when it was known is written later: one task, a bounded list, paced retries, a sure end.

Whatever is still waiting when the service ends is settled by the next start, which knows less and says `may_have_run`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from app.log import event, logger
from app.store.values import StoreError, StoreUnavailable

Write = Callable[[], Awaitable[object]]

MAX_WAITING = 4_096
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 5.0
_LAST_TRY_S = 2.0


class Settler:
    """Owns the writes that wait. An async context manager; `later` never blocks and never raises."""

    def __init__(self) -> None:
        """Nothing waits yet."""
        self._waiting: deque[Write] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._watching: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Writes not done yet."""
        return len(self._waiting)

    def later(self, write: Write) -> None:
        """Do `write` as soon as the database takes it. Over the bound the oldest is given up, and that is logged."""
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            event(logger, "settle.given_up", level=logging.ERROR)
        self._waiting.append(write)
        self._wake.set()

    def watch(self, work: Coroutine[Any, Any, None]) -> None:
        """Own a short piece of work that has a deadline of its own. Over the bound it is not begun, and that is logged."""
        if len(self._watching) >= MAX_WAITING:
            work.close()
            event(logger, "watch.given_up", level=logging.ERROR)
            return
        task = asyncio.create_task(work)
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def __aenter__(self) -> Self:
        """Start the task."""
        self._task = asyncio.create_task(self._work(), name="settler")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """One last try within two seconds, then stop."""
        if self._task is None:
            return
        owned = [self._task, *self._watching]
        for task in owned:
            task.cancel()
        await asyncio.gather(*owned, return_exceptions=True)
        try:
            async with asyncio.timeout(_LAST_TRY_S):
                while self._waiting and await self._once():
                    pass
        except TimeoutError:
            event(logger, "settle.unfinished", level=logging.WARNING, waiting=len(self._waiting))

    async def _work(self) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            if await self._once():
                pause = _FIRST_PAUSE_S
                continue
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    async def _once(self) -> bool:
        """Try the oldest; True when it left the list (done, or refused for good)."""
        write = self._waiting[0]
        try:
            await write()
        except StoreUnavailable:
            return False
        except StoreError as error:
            event(logger, "settle.refused", level=logging.ERROR, cause=type(error).__name__)
        if self._waiting and self._waiting[0] is write:
            self._waiting.popleft()
        return True
