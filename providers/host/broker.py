"""The worker's way to a broker: one question, one answer, over HTTP/1.1 on a Unix socket or a loopback address.

A connection carries one question at a time and is kept for a moment afterwards. What it carries names the run by the run's
own pass, so runs may share connections. A question is sent at most once: what it asks for may have an effect, so a connection
that breaks while it is under way is a failure, never a reason to send it again.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import h11

from plimsoll.contract.grants import ANSWER_BYTES

CONNECT_S: Final = 5.0
ANSWER_S: Final = 120.0
"""From the question to the answer's last byte; a run's end comes first, or the broker's own deadlines."""
CONNECTIONS: Final = 1_024
"""Each run has a bound of its own, far below: one run's calls that hang keep no other's waiting."""
KEPT: Final = 8
KEPT_S: Final = 2.0
"""Less than servers keep an idle connection, so that one that is taken again is nearly never gone."""
_HEAD_BYTES: Final = 16 << 10
_CHUNK: Final = 256 << 10
AT_HAND: Final = 64 << 10
"""A longer answer is only read when its asker is ready for it."""
_PATH: Final = "/v1/calls"

Ready = Callable[[], Awaitable[None]]
"""Returns when there is a place for a long answer."""


class BrokerFailed(Exception):
    """There is no answer to be had; `reason` is a sentence of ours."""

    def __init__(self, reason: str) -> None:
        """Keep the reason."""
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Place:
    """Where a broker listens: a path, or a host and a port."""

    path: str | None
    host: str = ""
    port: int = 0

    @classmethod
    def of(cls, url: str) -> "Place":
        """From `unix:///path` or `http://host:port`. Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
            return cls(parts.path)
        if parts.scheme != "http" or not parts.hostname or parts.path not in {"", "/"}:
            raise ValueError("broker")
        return cls(None, parts.hostname, parts.port or 80)

    @property
    def authority(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.path is None else "localhost"


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader = field(repr=False)
    writer: asyncio.StreamWriter = field(repr=False)
    protocol: h11.Connection = field(repr=False)
    idle_since: float = 0.0

    async def exchange(self, head: h11.Request, body: bytes, ready: Ready) -> tuple[int, bytes]:
        """Send one question and read its answer. Raises OSError, h11.ProtocolError, BrokerFailed."""
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.writer.write(self.protocol.send(event) or b"")
        await self.writer.drain()
        status, answer, is_ready = 0, bytearray(), False
        while True:
            match await self._next():
                case h11.Response(status_code=code):
                    status = code
                case h11.Data(data=data):
                    answer += data
                case h11.EndOfMessage():
                    return status, bytes(answer)
                case h11.ConnectionClosed():
                    raise ConnectionResetError
                case _:
                    pass  # an interim answer
            if len(answer) > AT_HAND and not is_ready:
                await ready()
                is_ready = True
            if len(answer) > ANSWER_BYTES:
                raise BrokerFailed(f"the answer is over {ANSWER_BYTES} bytes")

    async def _next(self) -> Any:
        while (event := self.protocol.next_event()) is h11.NEED_DATA:
            self.protocol.receive_data(await self.reader.read(_CHUNK))
        return event

    def again(self, now: float) -> bool:
        """Whether it can carry another question."""
        if self.protocol.our_state is not h11.DONE or self.protocol.their_state is not h11.DONE:
            return False
        self.protocol.start_next_cycle()
        self.idle_since = now
        return True

    def close(self) -> None:
        self.writer.transport.abort()


class Broker:
    """Everything that is under way to one or several brokers. `close` at the end."""

    def __init__(self) -> None:
        """Nothing is connected yet."""
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._kept: dict[str, deque[_Connection]] = {}

    async def ask(self, url: str, headers: Mapping[str, str], body: bytes, ready: Ready) -> tuple[int, bytes]:
        """Status and body of the answer. Raises BrokerFailed; a cancelled question closes its connection.

        A long answer stays with the broker, but for its beginning, until `ready` returns.
        """
        try:
            place = Place.of(url)
        except ValueError:
            raise BrokerFailed("the broker's address is none") from None
        async with self._slots:
            try:
                async with asyncio.timeout(ANSWER_S):
                    return await self._ask(url, place, headers, body, ready)
            except TimeoutError:
                raise BrokerFailed("the broker did not answer in time") from None
            except (OSError, h11.ProtocolError):
                raise BrokerFailed("the broker could not be asked") from None

    async def _ask(
        self, url: str, place: Place, headers: Mapping[str, str], body: bytes, ready: Ready
    ) -> tuple[int, bytes]:
        connection = self._take(url) or await _connect(place)
        reusable = False
        try:
            fields = {"Host": place.authority, "Content-Type": "application/json", **headers}
            lines = [*fields.items(), ("Content-Length", str(len(body)))]
            head = h11.Request(method="POST", target=_PATH, headers=lines)
            answer = await connection.exchange(head, body, ready)
            reusable = connection.again(asyncio.get_running_loop().time())
            return answer
        finally:
            kept = self._kept.setdefault(url, deque())
            if reusable and len(kept) < KEPT:
                kept.append(connection)
            else:
                connection.close()

    def _take(self, url: str) -> _Connection | None:
        """One that is kept, still open and not old; the others are closed."""
        kept, oldest = self._kept.get(url, deque()), asyncio.get_running_loop().time() - KEPT_S
        while kept:
            connection = kept.pop()
            if connection.idle_since >= oldest and not connection.reader.at_eof():
                return connection
            connection.close()
        return None

    def close(self) -> None:
        """Close what is kept. What is under way is its asker's to cancel."""
        for kept in self._kept.values():
            for connection in kept:
                connection.close()
        self._kept.clear()


async def _connect(place: Place) -> _Connection:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CONNECT_S):
            if place.path is None:
                streams = await asyncio.open_connection(place.host, place.port)
            else:
                streams = await asyncio.open_unix_connection(place.path)
            return _Connection(*streams, h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES))
    raise BrokerFailed("the broker does not take connections")
