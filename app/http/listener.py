"""One listener: uvicorn with our protocol class, our limits and our answers.

server = make_server(app, limits=…, trusted_proxies=…, on_ready=…)
await server.serve(sockets=[bind_tcp("127.0.0.1", 8746)])     # until a signal or server.stop()
"""

from collections.abc import Callable, Sequence
from ipaddress import IPv4Network, IPv6Network

import uvicorn
from starlette.types import ASGIApp

from app.http.limits import DEFAULTS, ListenerLimits

Network = IPv4Network | IPv6Network


class Server(uvicorn.Server):
    """uvicorn's server with a way to know that it listens, and a way to end it."""

    def stop(self) -> None:
        """Accept no more, finish what runs within the grace time, then end `serve`."""
        self.should_exit = True


def make_server(
    app: ASGIApp,
    *,
    limits: ListenerLimits = DEFAULTS,
    trusted_proxies: Sequence[Network] = (),
    on_ready: Callable[[], None] = lambda: None,
    grace_s: int = 10,
    lifespan: bool = True,
) -> Server:
    """A server for one or more bound sockets; `on_ready` is called once after the lifespan's start, when it accepts."""
    raise NotImplementedError
