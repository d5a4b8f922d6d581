"""The client's HTTP transports: one connection pool, no proxy, no cookies, no redirects, no retries.

Plain httpx2 transports that, once closed, stay closed. The synchronous one also has a deadline for the whole exchange, because
a socket's own timeout starts anew with every byte that trickles in.
"""

import socket
import ssl
import time
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

import httpcore2
import httpx2
from typing_extensions import override

from plimsoll.client.options import Options

CONNECT_S = 10.0
_KEEPALIVE_S = 2.0
"""Shorter than servers keep a connection, so that a request is not written into one that is just being closed."""
_CONNECTIONS = 100
_SLICE = 64 * 1024

DEADLINE: ContextVar[float] = ContextVar("plimsoll_deadline")
"""End of this thread's exchange on the monotonic clock, seconds."""

_Options = Iterable[Any] | None


def remaining(limit: float | None) -> float:
    """Seconds one operation may take: what is left of the exchange, at most `limit`."""
    left = DEADLINE.get() - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left if limit is None else min(left, limit)


class ClosedClient(OSError):
    """The client was closed before this exchange began: nothing was sent."""


class _Stream(httpcore2.NetworkStream):
    def __init__(self, inner: httpcore2.NetworkStream) -> None:
        self._inner = inner

    @override
    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, remaining(timeout))

    @override
    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        view = memoryview(buffer)
        for start in range(0, len(view), _SLICE):
            self._inner.write(bytes(view[start : start + _SLICE]), remaining(timeout))

    @override
    def close(self) -> None:
        self._inner.close()

    @override
    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, remaining(timeout)))

    @override
    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Backend(httpcore2.SyncBackend):
    @override
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: _Options = None,
    ) -> httpcore2.NetworkStream:
        limit = remaining(timeout)
        return _Stream(super().connect_tcp(host, port, limit, local_address, socket_options))

    @override
    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: _Options = None
    ) -> httpcore2.NetworkStream:
        # As httpcore2 does it, but for one thing: a socket that cannot be connected is closed.
        from httpcore2._backends.sync import SyncStream  # noqa: PLC0415 - no public name makes a stream of a socket

        found = socket.socket(socket.AF_UNIX)
        try:
            for option in socket_options or ():
                found.setsockopt(*option)
            found.settimeout(remaining(timeout))
            found.connect(path)
        except BaseException as error:
            found.close()
            if isinstance(error, TimeoutError):
                raise httpcore2.ConnectTimeout from error
            if isinstance(error, OSError):
                raise httpcore2.ConnectError from error
            raise
        return _Stream(SyncStream(found))


class SyncTransport(httpx2.HTTPTransport):
    """An httpx2 transport whose every read and write ends at `DEADLINE`."""

    def __init__(self, options: Options) -> None:
        context = tls_context(options)
        super().__init__(verify=context, trust_env=False)
        # The transport has no parameter for the backend; a test with a trickling server watches this line.
        self._pool = httpcore2.ConnectionPool(
            ssl_context=context,
            max_connections=_CONNECTIONS,
            keepalive_expiry=_KEEPALIVE_S,
            uds=options.unix_socket,
            network_backend=_Backend(),
        )
        self._closed = False

    @override
    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._closed:
            raise ClosedClient
        return super().handle_request(request)

    @override
    def close(self) -> None:
        self._closed = True
        super().close()


class AsyncTransport(httpx2.AsyncHTTPTransport):
    """An asynchronous httpx2 transport; its deadline is the event loop's."""

    def __init__(self, options: Options) -> None:
        limits = httpx2.Limits(max_connections=_CONNECTIONS, keepalive_expiry=_KEEPALIVE_S)
        context = tls_context(options)
        super().__init__(verify=context, trust_env=False, limits=limits, uds=options.unix_socket)
        self._closed = False

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._closed:
            raise ClosedClient
        return await super().handle_async_request(request)

    @override
    async def aclose(self) -> None:
        self._closed = True
        await super().aclose()


def tls_context(options: Options) -> ssl.SSLContext:
    """The caller's context, or the usual one; for cleartext an empty one, since loading authorities takes a while."""
    if options.tls is not None:
        return options.tls
    if options.origin.startswith("http://"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx2.create_ssl_context(trust_env=False)
