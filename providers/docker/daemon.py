"""The docker daemon, as far as this provider speaks with it: every call has a deadline and every answer a bound.

    DaemonError      a call failed; `code` is stable, and nothing of what the daemon said goes along
    StreamCut        an attached stream is broken (a ConnectionError)

The daemon is trusted with the machine already, so its word is believed about what it did, and never about the wall.
"""

import asyncio
import contextlib
import json
import re
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, Self

import aiodocker
import aiohttp
from aiodocker.stream import Message, Stream
from aiohttp.http import HttpProcessingError
from typing_extensions import override

from providers.docker.events import Death, Deaths
from providers.docker.recipe import LABEL

CALL_S: Final = 10.0
START_S: Final = 30.0
"""For what starts or ends processes, on a busy machine."""
EXPORT_S: Final = 120.0
_PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_MOST_PAUSE_S: Final = 2.0
_STEADY_S: Final = 1.0
_CHUNK: Final = 256 << 10
_ID: Final = re.compile(r"[0-9a-f]{64}")
_NOT_CONNECTED: Final = 900
_CODES: Final = {404: "unknown", 409: "conflict", _NOT_CONNECTED: "unreachable"}
_LINE: Final = 1 << 18
_ANSWER: Final = 4 << 20
"""Bytes of an answer that is taken whole."""
_OF_A_PIECE: Final = 128
"""Bytes that keeping a piece of a stream takes beside its own."""


class DaemonError(Exception):
    """`code`: unreachable, timeout, unknown, conflict, refused, failed, nonsense, too_large; `status` is HTTP's, or 0."""

    def __init__(self, code: str, status: int = 0) -> None:
        """Keep both."""
        super().__init__(code)
        self.code = code
        self.status = status


class StreamCut(ConnectionError):
    """The stream was cut off, by either side."""


class Daemon:
    """One daemon's client. Use as an async context manager, from one event loop; entering does not wait for the daemon."""

    def __init__(self, host: str) -> None:
        """`unix:///path` or `tcp://address:port`."""
        self._host = host
        self._client: aiodocker.Docker | None = None
        self._listener: asyncio.Task[None] | None = None
        self._since = ""
        self.deaths = Deaths()
        self.connected = asyncio.Event()
        """Whether the daemon tells us what happens."""
        self.on_lost: Callable[[], None] = _nothing
        """Called whenever it no longer does."""
        self.on_back: Callable[[], None] = _nothing
        """Called when it does again, or at last."""
        self._away = False

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        path = self._host.removeprefix("unix://")
        # Not limited: every container keeps a connection. A connector of ours is also what keeps the environment out.
        connector: aiohttp.BaseConnector
        if path == self._host:
            connector, url = aiohttp.TCPConnector(limit=0), self._host
        else:
            connector, url = aiohttp.UnixConnector(path, limit=0), "unix://localhost"
        self._session = aiohttp.ClientSession(
            connector=connector, response_class=_Answer, timeout=aiohttp.ClientTimeout()
        )
        self._client = aiodocker.Docker(url=url, session=self._session)
        self._listener = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *_: object) -> None:
        """End every connection."""
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        await self._docker.close()
        await self._session.close()

    @property
    def _docker(self) -> aiodocker.Docker:
        if self._client is None:
            raise RuntimeError("not open")
        return self._client

    # --- about the daemon and images --------------------------------------------------------------------------------

    async def version(self) -> dict[str, Any]:
        """GET /version."""
        async with _within(CALL_S):
            return _object(await self._docker.version())

    async def info(self) -> dict[str, Any]:
        """GET /info."""
        async with _within(CALL_S):
            return _object(await self._docker.system.info())

    async def image(self, name: str) -> dict[str, Any]:
        """What the daemon says of an image."""
        async with _within(CALL_S):
            return _object(await self._docker.images.inspect(name))

    async def export(self, image_id: str, most_bytes: int) -> AsyncIterator[bytes]:
        """A tar of that image, in pieces; DaemonError `too_large` instead of more than `most_bytes`."""
        async for data in self._content(f"images/{image_id}/get", {}, most_bytes, EXPORT_S):
            yield data

    # --- containers -------------------------------------------------------------------------------------------------

    async def create(self, name: str, body: Mapping[str, Any]) -> str:
        """Its id. After `unreachable` and `timeout` it may exist, or come to."""
        async with _within(START_S):
            made = await self._docker.containers.create(body, name=name)
            if not _ID.fullmatch(made.id):
                raise ValueError("no id")
            return made.id

    async def attach(self, container: str) -> "Attached":
        """Its three streams, before it is started: then nothing it says is lost."""
        handle = self._docker.containers.container(container)
        stream = handle.attach(stdin=True, stdout=True, stderr=True)
        try:
            async with _within(CALL_S):
                await stream.__aenter__()
            return Attached(stream)
        except BaseException:
            if stream._resp is not None:  # noqa: SLF001  # the library leaves a stream open that came to nothing
                stream._resp.close()  # noqa: SLF001  # as above
                stream._closed = True  # noqa: SLF001  # as above
            raise

    async def start(self, container: str) -> None:
        """Return when its first process was started."""
        async with _within(START_S):
            await self._docker.containers.container(container).start()

    async def inspect(self, container: str) -> dict[str, Any]:
        """What the daemon says of a container, by id or name."""
        async with _within(CALL_S):
            return _object(await self._docker.containers.container(container).show())

    async def archive(self, container: str, path: str, most_bytes: int) -> bytes:
        """A tar of `path` in its image and writable layer; DaemonError `too_large` instead of more than `most_bytes`."""
        content = self._content(f"containers/{container}/archive", {"path": path}, most_bytes, CALL_S)
        return b"".join([data async for data in content])

    async def remove(self, container: str) -> bool:
        """Kill and delete it, by id or name; True if it was there. When this returns it is gone, otherwise DaemonError."""
        there = False
        for pause in (*_PAUSES, None):
            try:
                async with _within(START_S):
                    await self._docker.containers.container(container).delete(force=True, v=True)
                return True
            except DaemonError as error:
                if error.code == "unknown":
                    return there
                if pause is None or error.code in {"unreachable", "timeout"}:
                    raise
            there = True  # it is going already, or was not to be killed just now
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def died(self, container: str) -> Death:
        """How it ended, waiting at most two seconds to hear of it."""
        return await self.deaths.of(container)

    # --- events -----------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Hear of deaths as long as this lives, through every restart of the daemon."""
        failures = 0
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            with contextlib.suppress(DaemonError):
                await self._hear()
            self._away = True
            failures = 0 if loop.time() - began > _STEADY_S else failures + 1
            if self.connected.is_set():
                self.connected.clear()
                self.on_lost()
            await asyncio.sleep(_PAUSES[failures] if failures < len(_PAUSES) else _MOST_PAUSE_S)

    async def _hear(self) -> None:
        """One stream of events to its end, from where the last one ended."""
        filters = {"type": ["container"], "event": ["oom", "die"], "label": [LABEL]}
        params = {"filters": json.dumps(filters)} | ({"since": self._since} if self._since else {})
        async with _translated(), await self._get("events", params, CALL_S) as answer:
            self.connected.set()
            if self._away:
                self._away = False
                self.on_back()
            while line := await answer.content.readline():
                event = json.loads(line)
                self._since = f"{event['timeNano'] // 10**9}.{event['timeNano'] % 10**9:09d}"
                self.deaths.heard(event)

    # --- what the client has no bounded call for ----------------------------------------------------------------------

    async def _content(
        self, path: str, params: Mapping[str, str], most_bytes: int, seconds: float
    ) -> AsyncIterator[bytes]:
        """What is there, in pieces. The deadline is for waiting here, not for what the caller does in between."""
        left = most_bytes
        deadline = asyncio.get_running_loop().time() + seconds
        async with await self._get(path, params, seconds) as answer:
            while True:
                async with _translated(), asyncio.timeout_at(deadline):
                    data = await answer.content.read(_CHUNK)
                left -= len(data)
                if left < 0:
                    raise DaemonError("too_large")
                if not data:
                    return
                yield data

    async def _get(self, path: str, params: Mapping[str, str], seconds: float) -> aiohttp.ClientResponse:
        client = self._docker
        if client.api_version == "auto":  # it asks with its first call, and this is none of its calls
            await self.version()
        async with _within(seconds):
            url = f"{client.docker_host}/{client.api_version}/{path}"
            answer = await client.session.get(url, params=params, read_bufsize=_LINE)
        if answer.status != HTTPStatus.OK:
            answer.close()
            raise _error_of(answer.status)
        return answer


class Attached:
    """A container's streams. What is not read here stays with the daemon: a pipe's worth, then the container waits."""

    def __init__(self, stream: Stream) -> None:
        """An open stream."""
        self._stream = stream
        response = stream._resp  # noqa: SLF001  # the transport is nowhere else, and only the transport can be aborted
        if response is None or response.connection is None or response.connection.transport is None:
            raise StreamCut
        self._transport: asyncio.Transport = response.connection.transport
        self._aborted = False
        self._writing: set[asyncio.Task[bool]] = set()
        protocol, queue = response.connection.protocol, stream._queue  # noqa: SLF001  # as above
        if protocol is None or queue is None:
            raise StreamCut
        # The library's own parser keeps a whole frame, however long; it may have the beginning of one already.
        pieces, parser = _Pieces(queue), protocol._payload_parser  # noqa: SLF001  # as above
        pieces.feed_data(bytes(getattr(parser, "_buf", b"")))
        protocol.set_parser(pieces, queue)

    async def read(self) -> tuple[int, bytes] | None:
        """(1 for stdout or 2 for stderr, bytes), or None at the end, however it came."""
        if self._aborted:
            return None
        try:
            message = await self._stream.read_out()
        except (aiohttp.ClientError, OSError):
            return None
        return None if message is None else (message.stream, message.data)

    async def write(self, data: bytes) -> None:
        """Return when there is room for more. Raises StreamCut.

        All writers wait for one future of the library's: cancelling it for one that is cancelled would cancel the others.
        """
        if self._transport.is_closing():
            raise StreamCut
        task = asyncio.create_task(self._written(data))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        if not await asyncio.shield(task):
            raise StreamCut

    async def _written(self, data: bytes) -> bool:
        """False when the stream is cut. Ends with the connection at the latest."""
        try:
            await self._stream.write_in(data)
        except (aiohttp.ClientError, OSError, AssertionError, RuntimeError):
            return False
        return True

    async def abort(self) -> None:
        """Cut it now, whatever is still to be read or written; again is fine. Whoever reads finds the end."""
        self._aborted = True
        self._transport.abort()
        with contextlib.suppress(AssertionError):  # its connection is gone already
            await self._stream.close()


class _Pieces:
    """The daemon's frames (a stream's number and a length before each) as pieces, passed on as they come."""

    _HEAD: Final = struct.Struct(">BxxxL")

    def __init__(self, queue: Any) -> None:
        """`queue` stops the reading when too much waits in it."""
        self._queue = queue
        self._head = bytearray()
        self._stream = self._left = 0

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take what came."""
        view = memoryview(data)
        while view:
            view = view[self._take_content(view) if self._left else self._take_head(view) :]
        return False, b""

    def _take_content(self, view: memoryview) -> int:
        piece = bytes(view[: self._left])
        self._left -= len(piece)
        self._queue.feed_data(Message(self._stream, piece), len(piece) + _OF_A_PIECE)
        return len(piece)

    def _take_head(self, view: memoryview) -> int:
        part = view[: self._HEAD.size - len(self._head)]
        self._head += part
        if len(self._head) == self._HEAD.size:
            self._stream, self._left = self._HEAD.unpack(self._head)
            self._head.clear()
        return len(part)

    def feed_eof(self) -> None:
        """The stream is over."""
        self._queue.feed_eof()

    def set_exception(self, exc: BaseException, *_: object) -> None:
        """It is broken."""
        self._queue.set_exception(exc)


class _Answer(aiohttp.ClientResponse):
    """An answer that is read whole only up to a bound, by the library too."""

    @override
    async def read(self) -> bytes:
        """Raises ValueError when there is more."""
        if self._body is None:
            try:
                self._body = await self._bounded()
            except BaseException:
                self.close()
                raise
            if self.status != HTTPStatus.SWITCHING_PROTOCOLS:
                self.release()
        return self._body

    async def _bounded(self) -> bytes:
        content = bytearray()
        while part := await self.content.readany():
            content += part
            if len(content) > _ANSWER:
                raise ValueError("too large")
        return bytes(content)


def _object(said: Any) -> dict[str, Any]:
    """Raises TypeError when it is none."""
    if not isinstance(said, dict):
        raise TypeError("no object")
    return said


def _nothing() -> None:
    pass


def _error_of(status: int) -> DaemonError:
    return DaemonError(
        _CODES.get(status, "failed" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "refused"), status
    )


@contextlib.asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    async with _translated(), asyncio.timeout(seconds):
        yield


@contextlib.asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    """Let nothing out but our own error: the others carry what the daemon said."""
    try:
        yield
    except TimeoutError:
        raise DaemonError("timeout") from None
    except aiodocker.DockerError as error:
        raise _error_of(error.status) from None
    except (aiohttp.ClientError, OSError):
        raise DaemonError("unreachable") from None
    except HttpProcessingError:  # a line that is too long, and other things that are no HTTP
        raise DaemonError("nonsense") from None
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError):
        raise DaemonError("nonsense") from None
