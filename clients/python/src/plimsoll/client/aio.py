"""`AsyncClient`: the asyncio shell. The same exchanges and the same checks as `Client`."""

import asyncio
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx2
from typing_extensions import override

from plimsoll.client import core
from plimsoll.client.answers import Received, check_head
from plimsoll.client.core import Core, Prepared, project, snippet
from plimsoll.client.errors import PlimsollError
from plimsoll.client.exchange import FAILURES, Collected, failure, head_of, http_request, unix_ms
from plimsoll.client.handles import AsyncRunHandle, until_final_async
from plimsoll.client.inputs import Files
from plimsoll.client.kept import Patience
from plimsoll.client.options import ClientOptions, options
from plimsoll.client.progress import Progress
from plimsoll.client.requests import RunOptions
from plimsoll.client.results import ProjectRun, Run
from plimsoll.client.streams import AsyncRunStream
from plimsoll.client.transport import AsyncTransport
from plimsoll.client.watch import Watch, mark
from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import JavaScript, Python
from plimsoll.contract.rest import DescribeBody, EvidenceBody, GrantBody, RunPage, RunView

T = TypeVar("T")


class AsyncClient:
    """`Client` for asyncio; belongs to the event loop it is first used in. Close it, or use it in `async with`.

    A cancelled call leaves as CancelledError. That error then carries `not_dispatched` (`request` when nothing had been
    sent, else None: the connection was cut and the code may have run) and `request_id`.
    """

    def __init__(
        self, base_url: str | None = None, token: str | None = None, **how: Unpack[ClientOptions]
    ) -> None:
        self._options = options(base_url, token, **how)
        self._core = Core(self._options)
        self._transport: httpx2.AsyncBaseTransport = AsyncTransport(self._options)

    @override
    def __repr__(self) -> str:
        return f"AsyncClient({self._options.origin!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Runs that are under way elsewhere fail without a mark."""
        await self._transport.aclose()

    async def run_javascript(self, code: str, **how: Unpack[RunOptions]) -> Run:
        """As `Client.run_javascript`."""
        return await self._send(self._core.run(snippet(JavaScript(code), **how)))

    async def run_python(self, code: str, **how: Unpack[RunOptions]) -> Run:
        """As `Client.run_python`."""
        return await self._send(self._core.run(snippet(Python(code), **how)))

    async def start_javascript(self, code: str, **how: Unpack[RunOptions]) -> AsyncRunHandle[Run]:
        """As `Client.start_javascript`."""
        started = await self._send(self._core.start(snippet(JavaScript(code), **how)))
        return AsyncRunHandle(started, self._core, self._send)

    async def start_python(self, code: str, **how: Unpack[RunOptions]) -> AsyncRunHandle[Run]:
        """As `Client.start_javascript`."""
        started = await self._send(self._core.start(snippet(Python(code), **how)))
        return AsyncRunHandle(started, self._core, self._send)

    def stream_javascript(self, code: str, **how: Unpack[RunOptions]) -> AsyncRunStream[Run]:
        """As `Client.stream_javascript`, for `async with` and `async for`."""
        streaming = self._core.stream(snippet(JavaScript(code), **how))
        return AsyncRunStream(self._transport, self._options, streaming)

    def stream_python(self, code: str, **how: Unpack[RunOptions]) -> AsyncRunStream[Run]:
        """As `Client.stream_javascript`."""
        return AsyncRunStream(self._transport, self._options, self._core.stream(snippet(Python(code), **how)))

    async def run_project(
        self, files: Files, steps: Sequence[str], artifacts: Sequence[str] = (), **how: Unpack[RunOptions]
    ) -> ProjectRun:
        """As `Client.run_project`."""
        return await self._send(self._core.run(project(files, steps, artifacts, **how)))

    async def start_project(
        self, files: Files, steps: Sequence[str], artifacts: Sequence[str] = (), **how: Unpack[RunOptions]
    ) -> AsyncRunHandle[ProjectRun]:
        """As `Client.start_project`."""
        started = await self._send(self._core.start(project(files, steps, artifacts, **how)))
        return AsyncRunHandle(started, self._core, self._send)

    def stream_project(
        self, files: Files, steps: Sequence[str], artifacts: Sequence[str] = (), **how: Unpack[RunOptions]
    ) -> AsyncRunStream[ProjectRun]:
        """As `Client.stream_project`, for `async with` and `async for`."""
        streaming = self._core.stream(project(files, steps, artifacts, **how))
        return AsyncRunStream(self._transport, self._options, streaming)

    async def cancel(self, run_id: str) -> str:
        """As `Client.cancel`."""
        return await self._send(self._core.cancel(run_id))

    async def describe(self) -> DescribeBody:
        """As `Client.describe`."""
        return await self._send(self._core.describe())

    async def grants(self) -> list[GrantBody]:
        """As `Client.grants`."""
        return await self._send(self._core.grants())

    async def get_run(self, run_id: str, *, wait: int = 0) -> RunView:
        """As `Client.get_run`."""
        return await self._send(self._core.get_run(run_id, wait))

    async def wait_run(self, run_id: str, timeout: float | None = None) -> RunView:  # noqa: ASYNC109 - of the run
        """As `Client.wait_run`."""
        patience = Patience(timeout, self._options.deadline_s, time.monotonic())
        return await until_final_async(
            run_id, lambda wait: self._send(self._core.settled(run_id, wait)), patience
        )

    async def record(self, run_id: str) -> RunRecord:
        """As `Client.record`."""
        return await self._send(self._core.record(run_id))

    async def runs(self, *, limit: int | None = None, cursor: str | None = None) -> RunPage:
        """As `Client.runs`."""
        return await self._send(self._core.runs(limit, cursor))

    async def evidence(self, sha256: str) -> EvidenceBody:
        """As `Client.evidence`."""
        return await self._send(self._core.evidence(sha256))

    async def _send(self, prepared: Prepared[T]) -> T:
        progress = Progress()
        try:
            async with asyncio.timeout(self._options.deadline_s):
                received = await self._exchange(prepared, progress)
        except PlimsollError as error:
            error.request_id = prepared.request_id
            raise
        except FAILURES as error:
            raise failure(error, progress, prepared, self._options) from None
        except asyncio.CancelledError as error:
            mark(error, progress, prepared)
            raise
        return core.check(prepared, received)

    async def _exchange(self, prepared: Prepared[Any], progress: Progress) -> Received:
        await asyncio.sleep(
            0
        )  # a call that is already cancelled ends here, before anything is sent (check 13)
        watch = Watch(progress)
        request = http_request(prepared, self._options, watch.event)
        sent = unix_ms()
        progress.handed_over()
        try:
            response = await self._transport.handle_async_request(request)
        except BaseException:
            await watch.close()
            raise
        try:
            head, collected = head_of(response), Collected()
            check_head(head, prepared.statuses)
            async for part in response.aiter_raw():
                collected.add(part)
        finally:
            await response.aclose()
        return Received(head, collected.body(), sent, unix_ms())
