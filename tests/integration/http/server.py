"""The test service as a process of its own, with the limits it has in earnest: `python -m tests.integration.http.server`.

With `unpaced` strangers do not wait for their turns. Prints its port once it listens; ends at SIGTERM. Its log is its stderr.
"""

import asyncio
import sys
from dataclasses import replace

from app import log
from app.http.limits import DEFAULTS, ListenerLimits
from app.http.listener import bind_tcp, make_server
from app.http.middleware import Access, rim
from app.identity import Caller, token_sha256
from tests.integration.http.wire import CALLER, TOKEN, make_app


async def authenticate(digest: str) -> Caller | None:
    return CALLER if digest == token_sha256(TOKEN) else None


async def main(limits: ListenerLimits) -> None:
    log.configure_logging()
    access = Access(authenticate, frozenset({"localhost"}), "make one with plimsoll-admin")
    with bind_tcp("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        server = make_server(
            rim(make_app(DEFAULTS), access), limits=limits, on_ready=lambda: print(port, flush=True)
        )
        await server.serve(sockets=[bound])


if __name__ == "__main__":
    fast = replace(DEFAULTS, strangers_per_s=1e6, all_strangers_per_s=1e6)
    asyncio.run(main(fast if "unpaced" in sys.argv else DEFAULTS))
