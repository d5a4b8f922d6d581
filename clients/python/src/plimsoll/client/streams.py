"""A run's output as it comes: the two shells around `streaming.Reading`.

with client.stream_javascript("...") as stream:
    for event in stream:        # Accepted, then Output as often as there is some
        ...
    run = stream.result         # checked like any run, and the bytes streamed are the record's
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Generic, Never, Self, TypeVar

import httpx2

from plimsoll.client import answers, core
from plimsoll.client.answers import Head, Received
from plimsoll.client.core import Streaming
from plimsoll.client.errors import PlimsollError, RequestTimeout, StreamCut
from plimsoll.client.exchange import FAILURES, Collected, failure, head_of, http_request, unix_ms
from plimsoll.client.options import Options
from plimsoll.client.progress import Progress
from plimsoll.client.results import R
from plimsoll.client.streaming import Accepted, StreamEvent
from plimsoll.client.transport import DEADLINE
from plimsoll.client.watch import Watch, mark

T = TypeVar("T")

_TIMEOUTS = (TimeoutError, httpx2.TimeoutException)


class _Shared(Generic[R]):
    """What both shells keep. After an error the stream is over, and gives that error again."""

    def __init__(self, options: Options, streaming: Streaming[R]) -> None:
        self._options = options
        self._prepared = streaming.prepared
        self._reading = streaming.reading
        self._progress = Progress()
        self._until = 0.0
        self._sent_ms = 0
        self._head: Head | None = None
        self._events: Iterator[StreamEvent] = iter(())
        self._failed: PlimsollError | None = None

    @property
    def accepted(self) -> Accepted | None:
        """Who took the run, behind which wall; None before the first event."""
        return self._reading.accepted

    @property
    def result(self) -> R:
        """The run, once the stream was read to its end. Raises RuntimeError before, and the stream's error after one."""
        if self._failed is not None:
            raise self._failed
        if self._reading.run is None:
            raise RuntimeError("the stream has no result before it was read to its end")
        return self._reading.run

    def _begin(self) -> None:
        if self._until:
            raise RuntimeError("a stream is opened once")
        self._until = time.monotonic() + self._options.deadline_s
        self._sent_ms = unix_ms()

    def _take_head(self, response: httpx2.Response) -> bool:
        """Whether the answer is a stream, bound to our request (check 21)."""
        self._head = head_of(response)
        answers.check_head(self._head, self._prepared.statuses)
        if not answers.is_stream(self._head):
            return False
        answers.require_bound(self._head, self._prepared.request_id)
        return True

    def _other(self, body: bytes) -> Never:
        """An answer that is no stream: an error, a run that has no final word, or malformed."""
        core.check(self._prepared, Received(self._opened(), body, self._sent_ms, unix_ms()))

    def _opened(self) -> Head:
        if self._head is None:
            raise RuntimeError("a stream is read inside its `with` block")
        if self._failed is not None:
            raise self._failed
        return self._head

    def _feed(self, part: bytes | None) -> None:
        if part is None:
            self._events = iter(self._reading.end(self._opened(), self._sent_ms, unix_ms()))
        else:
            self._events = self._reading.feed(part)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Every failure becomes the stream's error."""
        try:
            yield
        except PlimsollError as error:
            error.request_id = self._prepared.request_id
            self._failed = error
            raise
        except FAILURES as error:
            self._failed = self._broken(error)
            raise self._failed from None

    def _broken(self, error: BaseException) -> PlimsollError:
        if self._head is None:
            return failure(error, self._progress, self._prepared, self._options)
        timed_out = isinstance(error, _TIMEOUTS)
        kind = RequestTimeout if timed_out else StreamCut
        what = "did not end in time" if timed_out else "broke off"
        return kind(f"the stream {what}: the code may have run", request_id=self._prepared.request_id)


class RunStream(_Shared[R]):
    """One run as it goes, to be used in `with`; leaving the block early hangs up, which cancels a run without a key.

    Iterating gives `Accepted`, then `Output`, and of a project `StepEnded` after each step's. The whole stream has the
    client's deadline. Nothing is read ahead: a slow reader slows the service down, and one that stands still for ten seconds
    is cut off by it.
    """

    def __init__(self, transport: httpx2.BaseTransport, options: Options, streaming: Streaming[R]) -> None:
        super().__init__(options, streaming)
        self._transport = transport
        self._response: httpx2.Response | None = None
        self._parts: Iterator[bytes] = iter(())

    def __enter__(self) -> Self:
        self._begin()
        try:
            with self._telling(), self._deadline():
                self._open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        if self._response is not None:
            self._response.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StreamEvent:
        self._opened()
        try:
            with self._telling(), self._deadline():
                event = self._pull()
        except PlimsollError:
            self.close()
            raise
        if event is None:
            raise StopIteration
        return event

    def _open(self) -> None:
        request = http_request(self._prepared, self._options, lambda name, _: self._progress.event(name))
        self._progress.handed_over()
        self._response = self._transport.handle_request(request)
        self._parts = self._response.iter_raw()
        if not self._take_head(self._response):
            collected = Collected()
            for part in self._parts:
                collected.add(part)
            self._other(collected.body())

    def _pull(self) -> StreamEvent | None:
        while (event := next(self._events, None)) is None:
            if self._reading.run is not None:
                return None
            self._feed(next(self._parts, None))
        return event

    @contextmanager
    def _deadline(self) -> Iterator[None]:
        token = DEADLINE.set(self._until)
        try:
            yield
        finally:
            DEADLINE.reset(token)


class AsyncRunStream(_Shared[R]):
    """As `RunStream`, for asyncio, in `async with` and `async for`. A cancelled step ends the stream."""

    def __init__(
        self, transport: httpx2.AsyncBaseTransport, options: Options, streaming: Streaming[R]
    ) -> None:
        super().__init__(options, streaming)
        self._transport = transport
        self._response: httpx2.Response | None = None
        self._parts: AsyncGenerator[bytes, None] | None = None

    async def __aenter__(self) -> Self:
        self._begin()
        try:
            await self._within(self._open())
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up."""
        if self._parts is not None:
            await self._parts.aclose()
        if self._response is not None:
            await self._response.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        self._opened()
        try:
            event = await self._within(self._pull())
        except BaseException:
            await self.close()
            raise
        if event is None:
            raise StopAsyncIteration
        return event

    async def _within(self, step: Awaitable[T]) -> T:
        try:
            with self._telling():
                async with asyncio.timeout(self._until - time.monotonic()):
                    return await step
        except asyncio.CancelledError as error:
            mark(error, self._progress, self._prepared)
            raise

    async def _open(self) -> None:
        await asyncio.sleep(0)  # as in `AsyncClient`: cancelled before this, nothing is sent (check 13)
        watch = Watch(self._progress)
        request = http_request(self._prepared, self._options, watch.event)
        self._progress.handed_over()
        try:
            self._response = await self._transport.handle_async_request(request)
        except BaseException:
            await watch.close()
            raise
        self._parts = self._response.aiter_raw()
        if not self._take_head(self._response):
            collected = Collected()
            async for part in self._parts:
                collected.add(part)
            self._other(collected.body())

    async def _pull(self) -> StreamEvent | None:
        while (event := next(self._events, None)) is None:
            if self._reading.run is not None:
                return None
            self._feed(await anext(self._parts, None) if self._parts is not None else None)
        return event
