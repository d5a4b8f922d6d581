"""The service's way to its broker, over HTTP with the control secret: a lease asked for, a lease closed."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

import httpx2

from plimsoll.contract import codec
from plimsoll.contract.leases import Closed, Registered, Registration

T = TypeVar("T")

REGISTER_S: Final = 4.0
"""A lease is made while a ticket waits, which is good for five seconds."""
CLOSE_S: Final = 8.0
"""The broker takes two for calls that are under way; the rest is for a busy machine."""
_PING_S: Final = 3.0
MISSES: Final = 3
_ANSWER_BYTES: Final = 4 << 20
_OK: Final = 200
_NO_CONTENT: Final = 204


class BrokerDown(Exception):
    """The broker gave no answer, or not one that we understand."""


class Start(Protocol):
    """One start of the broker, to which leases, their ends and questions belong."""

    def present(self) -> bool: ...
    def give_up(self) -> None: ...
    def silent(self) -> None: ...


class Elsewhere:
    """The broker of somebody else: it is taken to be there, and is not ours to end."""

    def present(self) -> bool:
        """Always."""
        return True

    def give_up(self) -> None:
        """Nothing can be done."""

    def silent(self) -> None:
        """Nothing can be done."""


ELSEWHERE: Final = Elsewhere()


class BrokerLink:
    """An async context manager. `url` is `unix:///PATH` or `http://HOST:PORT`."""

    def __init__(self, url: str, control: str) -> None:
        """Nothing is sent yet. `answered` is the latest that `watch` saw, once it `asked`."""
        self.url = url
        self.answered = self.asked = False
        path = url.removeprefix("unix://") if url.startswith("unix://") else None
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=32)
        self._client = httpx2.AsyncClient(
            # Without TLS there is nothing to verify, and reading authorities would cost the start a third of a second.
            transport=httpx2.AsyncHTTPTransport(uds=path, limits=limits, trust_env=False, verify=False),
            base_url="http://broker" if path else url,
            headers={"authorization": f"Bearer {control}"},
            trust_env=False,
            follow_redirects=False,
            timeout=CLOSE_S,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def register(self, asked: Registration) -> Registered:
        """A lease's secret, or the fault. Raises BrokerDown; the lease may then be there, until it is closed or expires."""
        return _read(Registered, await self._send("POST", "/v1/leases", REGISTER_S, codec.dumps(asked)))

    async def close(self, run_id: str) -> Closed:
        """End the lease of a run, if there is one. Raises BrokerDown: then it may still be there."""
        return _read(Closed, await self._send("POST", f"/v1/leases/{run_id}/close", CLOSE_S))

    async def answers(self) -> bool:
        """Whether it answers at all."""
        try:
            await self._send("GET", "/v1/health", _PING_S)
        except BrokerDown:
            return False
        return True

    async def watch(self, start: Callable[[], Start], *, ping_s: float = _PING_S) -> None:
        """For ever: call `silent` of the present start after three questions to it without an answer in time."""
        counted, misses = start(), 0
        while True:
            asked = start()
            self.answered, self.asked = await self.answers(), True
            if self.answered or asked is not counted or not asked.present():
                counted, misses = asked, 0
            if not self.answered and asked.present():
                misses += 1
            if misses == MISSES:
                misses = 0
                asked.silent()
            await asyncio.sleep(ping_s)

    async def _send(self, method: str, path: str, seconds: float, body: bytes | None = None) -> bytes:
        try:
            async with asyncio.timeout(seconds):
                answer = await self._client.request(method, path, content=body)
        except (httpx2.HTTPError, TimeoutError, OSError) as error:
            # The kind alone: a text could repeat the request.
            raise BrokerDown(type(error).__name__) from None
        if answer.status_code not in {_OK, _NO_CONTENT} or len(answer.content) > _ANSWER_BYTES:
            raise BrokerDown(f"status {answer.status_code}")
        return answer.content


def _read(shape: type[T], body: bytes) -> T:
    try:
        return codec.loads(shape, body)
    except ValueError:
        raise BrokerDown("malformed") from None
