"""The test service as a process of its own, with the limits it has in earnest: `python -m tests.integration.http.server`.

Prints its port once it listens; ends at SIGTERM. Its log is its stderr.
"""

import asyncio

from app import log
from app.http.limits import DEFAULTS
from app.http.listener import bind_tcp, make_server
from app.http.middleware import Access, rim
from app.identity import Caller, token_sha256
from tests.integration.http.wire import CALLER, TOKEN, make_app


async def authenticate(digest: str) -> Caller | None:
    return CALLER if digest == token_sha256(TOKEN) else None


async def main() -> None:
    log.configure_logging()
    access = Access(authenticate, frozenset({"localhost"}), "make one with plimsoll-admin")
    with bind_tcp("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        server = make_server(rim(make_app(DEFAULTS), access), on_ready=lambda: print(port, flush=True))
        await server.serve(sockets=[bound])


if __name__ == "__main__":
    asyncio.run(main())
