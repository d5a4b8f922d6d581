"""Connections that go to vetted addresses and nowhere else, whatever the name would mean by now.

`PinnedNetwork` is the network that the HTTP library below is given. It ignores the name it is asked for, connects to the
addresses that were judged, and compares who answers before a byte is sent. It also reads the head of every answer before
the library does, because the library makes one of two equal lengths.
"""

import asyncio
import ipaddress
import re
import ssl
from collections.abc import Iterable, Sequence
from typing import Any, Final

import httpcore2
from typing_extensions import override

from broker.addresses import Address, plain

HEAD_BYTES: Final = 64 << 10
HEADERS: Final = 256
INTERIM: Final = 16
"""Interim heads (1xx) before an answer's own."""
LENGTH_DIGITS: Final = 15
_END: Final = re.compile(rb"\r?\n\r?\n")
_LENGTH: Final = re.compile(rb"^content-length[ \t]*:([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_INFORMATIONAL: Final = re.compile(rb"HTTP/1\.[01] 1[0-9]{2}\b")


class PeerMismatch(httpcore2.ConnectError):
    """Somebody else answered than was vetted."""


class BadFraming(httpcore2.RemoteProtocolError):
    """An answer says its length more than once, its head is too long, or too many come before it."""


class PinnedNetwork(httpcore2.AsyncNetworkBackend):
    """The network of one origin: its vetted addresses."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        """Connect to these, in this order."""
        self._addresses = tuple(addresses)
        self._network = httpcore2.AnyIOBackend()

    @override
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first address that takes one; all together have `timeout` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (timeout or 0.0)
        failure: Exception = httpcore2.ConnectError("no address")
        for position, address in enumerate(self._addresses):
            share = max(deadline - loop.time(), 0.0) / (len(self._addresses) - position)
            try:
                stream = await self._network.connect_tcp(str(address), port, timeout=share)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
            else:
                return PinnedStream(await _checked(stream, address))
        raise failure

    @override
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _checked(stream: httpcore2.AsyncNetworkStream, address: Address) -> httpcore2.AsyncNetworkStream:
    peer = plain(ipaddress.ip_address(stream.get_extra_info("socket").getpeername()[0]))
    if peer != address:
        await stream.aclose()
        raise PeerMismatch("another address answered")
    return stream


class PinnedStream(httpcore2.AsyncNetworkStream):
    """A connection whose answers' heads are looked at, and which serves again only after an answer of a stated length."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        """Wrap `stream`."""
        self._stream = stream
        self._head: bytearray | None = None
        self._interim = 0
        self._left: int | None = None
        """How many bytes of the answer are still to come; None while that is not known."""

    @override
    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._stream.read(max_bytes, timeout)
        if not data:
            # Every answer we take says its length, so an end of the connection is never the end of an answer.
            raise httpcore2.ReadError("closed")
        if self._head is not None:
            self._head += data
            self._look()
        elif self._left is not None:
            self._left -= len(data)
        return data

    @override
    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._head, self._left, self._interim = bytearray(), None, 0  # the next bytes to come begin an answer
        await self._stream.write(buffer, timeout)

    @override
    async def aclose(self) -> None:
        await self._stream.aclose()

    @override
    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        return PinnedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    @override
    def get_extra_info(self, info: str) -> Any:
        # The pool asks this before it uses a connection again, and closes one that has something to read. What a
        # server said behind its answer may be in the library's buffer by now, where it would answer the next request.
        if info == "is_readable" and self._left != 0:
            return True
        return self._stream.get_extra_info(info)

    def _look(self) -> None:
        """Judge every head that is whole by now; interim ones (1xx) come before the answer's own."""
        while self._head is not None and (end := _END.search(self._head)) is not None:
            head, rest = bytes(self._head[: end.start()]), self._head[end.end() :]
            length = _judged(head)
            if _INFORMATIONAL.match(head):
                self._head = rest
                self._interim += 1
                if self._interim > INTERIM:
                    raise BadFraming("too many interim heads")
            else:
                self._head, self._left = None, None if length is None else length - len(rest)
        if self._head is not None and len(self._head) > HEAD_BYTES:
            raise BadFraming("the head is too long")


def _judged(head: bytes) -> int | None:
    """The length a head states, or None. Raises BadFraming."""
    if len(head) > HEAD_BYTES or head.count(b"\n") > HEADERS:
        raise BadFraming("the head is too long")
    lengths = _LENGTH.findall(head)
    if len(lengths) > 1 or any(b"," in length for length in lengths):
        raise BadFraming("two lengths")
    digits = lengths[0].strip() if lengths else b""
    return int(digits) if digits.isdigit() and len(digits) <= LENGTH_DIGITS else None
