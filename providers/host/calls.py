"""One run's calls: from a guest's message to the broker's answer, for as long as the run goes on and no longer.

The pass is used here and nowhere else: a provider gets a function. Every message gets an answer in the broker's own form,
whatever fails, so that a guest sees one kind of failure. Nothing of a message or an answer is read, or logged.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Final, Self

from plimsoll.contract.grants import IN_FLIGHT, MESSAGE_BYTES, CallCode
from plimsoll.contract.worker import Lease
from providers.host.broker import Broker, BrokerFailed

CLOSE_S: Final = 2.0
_OK: Final = 200
_FORBIDDEN: Final = 403


class Calls:
    """An async context manager: at its exit calls under way are cancelled, and later ones refused."""

    def __init__(self, broker: Broker, lease: Lease, run_id: str) -> None:
        """Nothing is asked yet."""
        self._broker = broker
        self._url = lease.broker
        self._headers = {
            "Authorization": f"Bearer {lease.secret}",
            "Plimsoll-Run": run_id,
            "Plimsoll-Worker": lease.worker,
        }
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._large = asyncio.Lock()
        """Held by the one long answer that is here, until it was handed back: how fast that goes is up to the guest."""
        self._tasks: set[asyncio.Task[bytes]] = set()
        self._over = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        self._headers = {}
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)

    @asynccontextmanager
    async def call(self, message: bytes) -> AsyncIterator[bytes]:
        """The answer to one message of the guest, to be handed back within the block.

        Raises CancelledError at the run's end, and nothing else.
        """
        async with AsyncExitStack() as held:
            yield await self._answer(message, held)

    async def _answer(self, message: bytes, held: AsyncExitStack) -> bytes:
        if self._over:
            return failed(CallCode.NO_GRANT, "the run has ended")
        if len(message) > MESSAGE_BYTES:
            return failed(CallCode.TOO_LARGE, f"the message is over {MESSAGE_BYTES} bytes")
        task = asyncio.create_task(self._asked(message, held))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await task
        finally:
            task.cancel()  # whoever asked went away

    async def _asked(self, message: bytes, held: AsyncExitStack) -> bytes:
        async def ready() -> None:
            await held.enter_async_context(self._large)

        async with self._slots:
            try:
                status, answer = await self._broker.ask(self._url, self._headers, message, ready)
            except BrokerFailed as failure:
                return failed(CallCode.UPSTREAM, failure.reason)
        if status == _OK:
            return answer
        if status == _FORBIDDEN:
            return failed(CallCode.NO_GRANT, "the broker does not know this run")
        return failed(CallCode.UPSTREAM, "the broker refused the question")


def failed(code: CallCode, reason: str) -> bytes:
    """A failed call as a broker says it."""
    return json.dumps({"error": {"code": code.value, "reason": reason}}, separators=(",", ":")).encode()
