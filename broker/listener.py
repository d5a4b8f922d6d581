"""The broker's listener: uvicorn, with nobody but the service's user on a Unix socket, and nothing of requests in logs."""

import asyncio
import functools
import logging
import signal
import socket
import struct
from asyncio import BaseTransport, Transport
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from broker.api import Api

CONNECTIONS: Final = 8_192
_HEAD_BYTES: Final = 16 << 10
_KEEP_ALIVE_S: Final = 75
_CLOSE_S: Final = 3

# It would say there, with its traceback, what an exception's text holds.
logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)


class Protocol(H11Protocol):
    """HTTP/1.1 for `peers` alone."""

    def __init__(self, *args: Any, peers: frozenset[int], **options: Any) -> None:
        """`peers` are uids; they count on a Unix socket only."""
        super().__init__(*args, **options)
        self._peers = peers

    @override
    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(cast("Transport", transport))
        peer = transport.get_extra_info("socket")
        if peer is not None and peer.family == socket.AF_UNIX and _uid(peer) not in self._peers:
            cast("Transport", transport).abort()


def _uid(peer: socket.socket) -> int | None:
    try:
        raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except OSError:
        return None
    return int(struct.unpack("3i", raw)[1])


class Server(uvicorn.Server):
    """uvicorn's server with a way to know that it listens."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        """`on_ready` is called once."""
        super().__init__(config)
        self._on_ready = on_ready

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    @override
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM ends `serve`, and is not raised again behind it: leases are closed after that."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGTERM)

    def stop(self) -> None:
        """Accept no more, give what is under way a moment, and end."""
        self.should_exit = True


def make_server(api: Api, peers: frozenset[int], on_ready: Callable[[], None]) -> Server:
    """A server for a bound socket."""
    protocol: Any = functools.partial(Protocol, peers=peers)
    config = uvicorn.Config(
        cast("Any", api),
        http=protocol,
        ws="none",
        loop="asyncio",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=1024,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_S,
        h11_max_incomplete_event_size=_HEAD_BYTES,
        timeout_graceful_shutdown=_CLOSE_S,
    )
    return Server(config, on_ready)


def bind(listen: str) -> socket.socket:
    """The socket of a broker that is started by hand: `unix:/PATH` or `IP:PORT`. Raises OSError, ValueError."""
    if listen.startswith("unix:"):
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bound.bind(listen.removeprefix("unix:"))
        return bound
    host, _, port = listen.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((host.strip("[]"), int(port)))
    return bound
