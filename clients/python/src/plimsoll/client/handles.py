"""A run that goes on by itself: ask for its end, cancel it, look at it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from typing_extensions import override

from plimsoll.client import kept
from plimsoll.client.core import Core, Prepared
from plimsoll.client.kept import Patience, Started
from plimsoll.client.results import R
from plimsoll.contract.rest import RunView

T = TypeVar("T")


class Send(Protocol):
    """A client's way of sending."""

    def __call__(self, prepared: Prepared[T], /) -> T: ...


class AsyncSend(Protocol):
    """As `Send`."""

    def __call__(self, prepared: Prepared[T], /) -> Awaitable[T]: ...


def until_final(run_id: str, ask: Callable[[int], T | None], patience: Patience) -> T:
    """Ask, each time letting the service wait that many seconds, until there is a final word. Raises RunPending."""
    while True:
        wait = patience.wait(time.monotonic())
        if (found := ask(wait)) is not None:
            return found
        if (pause := patience.pause(time.monotonic())) is None:
            raise kept.still(run_id)
        time.sleep(0 if wait else pause)


async def until_final_async(run_id: str, ask: Callable[[int], Awaitable[T | None]], patience: Patience) -> T:
    """As `until_final`."""
    while True:
        wait = patience.wait(time.monotonic())
        if (found := await ask(wait)) is not None:
            return found
        if (pause := patience.pause(time.monotonic())) is None:
            raise kept.still(run_id)
        await asyncio.sleep(0 if wait else pause)


class RunHandle(Generic[R]):
    """One started run. It needs its client to be open; the run itself does not."""

    def __init__(self, started: Started[R], core: Core, send: Send) -> None:
        self._started = started
        self._core = core
        self._send = send

    @override
    def __repr__(self) -> str:
        return f"RunHandle({self.id!r})"

    @property
    def id(self) -> str:
        """The run's id."""
        return self._started.id

    def wait(self, timeout: float | None = None) -> R:
        """Wait for the run's end, at most `timeout` seconds (the client's deadline), and check it like any run.

        Raises RunPending while there is no final word, MayHaveRun when its end will never be known, a marked refusal when it is
        proven that nothing of it ran, NoResult when it is not kept any more. No other error here is marked.
        """
        patience = Patience(timeout, self._core.deadline_s, time.monotonic())
        if self._started.finished is not None:
            return self._started.finished
        return until_final(
            self.id, lambda wait: self._send(self._core.final_run(self._started, wait)), patience
        )

    def cancel(self) -> str:
        """Ask the run to end: `cancelled`, `already_finished`, `not_dispatched`, `may_have_run`, or `requested`."""
        return self._send(self._core.cancel(self.id))

    def view(self) -> RunView:
        """The run as it stands, without waiting; unlike `wait`, not compared with what was sent."""
        return self._send(self._core.look(self.id))


class AsyncRunHandle(Generic[R]):
    """As `RunHandle`, for asyncio. A cancelled `wait` leaves the run alone."""

    def __init__(self, started: Started[R], core: Core, send: AsyncSend) -> None:
        self._started = started
        self._core = core
        self._send = send

    @override
    def __repr__(self) -> str:
        return f"AsyncRunHandle({self.id!r})"

    @property
    def id(self) -> str:
        """The run's id."""
        return self._started.id

    async def wait(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - how long the run may take, not this call
        """As `RunHandle.wait`."""
        patience = Patience(timeout, self._core.deadline_s, time.monotonic())
        if self._started.finished is not None:
            return self._started.finished
        return await until_final_async(
            self.id, lambda wait: self._send(self._core.final_run(self._started, wait)), patience
        )

    async def cancel(self) -> str:
        """As `RunHandle.cancel`."""
        return await self._send(self._core.cancel(self.id))

    async def view(self) -> RunView:
        """As `RunHandle.view`."""
        return await self._send(self._core.look(self.id))
