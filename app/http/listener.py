"""One listener: uvicorn with our protocol class, our limits and our answers.

`make_server(app, …)` makes a `Server`; `await server.serve(sockets=[bind_tcp(…)])` runs it until a signal or `server.stop()`.
"""

import functools
import socket
from collections.abc import Callable, Iterable
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override

from app.http.door import Door
from app.http.limits import DEFAULTS, ListenerLimits
from app.http.protocol import Protocol
from app.http.sockets import UnsafePathError, bind_tcp, bind_unix

__all__ = ["ListenerLimits", "Server", "UnsafePathError", "bind_tcp", "bind_unix", "make_server"]

BACKLOG = 1024


class Server(uvicorn.Server):
    """uvicorn's server with a way to know that it listens, and a way to end it."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    def stop(self) -> None:
        """Accept no more, finish what runs within the grace time, then end `serve`."""
        self.should_exit = True


def make_server(
    app: ASGIApp,
    *,
    limits: ListenerLimits = DEFAULTS,
    trusted_proxies: Iterable[str] = (),
    on_ready: Callable[[], None] = lambda: None,
    grace_s: int = 10,
    lifespan: bool = True,
) -> Server:
    """A server for bound sockets; `on_ready` is called once after the lifespan's start, when it accepts.

    `trusted_proxies` are addresses or networks without a cap of their own. `lifespan` false is for a second listener on an
    application whose first one runs the lifespan.
    """
    protocol: Any = functools.partial(Protocol, door=Door(limits, trusted_proxies))
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        loop="asyncio",
        interface="asgi3",
        lifespan="on" if lifespan else "off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=limits.head_bytes,
        timeout_graceful_shutdown=grace_s,
    )
    return Server(config, on_ready)
