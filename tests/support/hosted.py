"""A worker's host in the test's own process, over any provider and with a real link to it, so that a test can reach both."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.dispatch.link import WorkerLink
from plimsoll.contract.worker import Health
from providers.host.server import Host
from providers.host.wall import Wall
from providers.host.wire import Wire
from providers.seam import Provider

FIRST_LOOK_S = 240.0


@dataclass
class Hosted:
    """What serves, and what the service would speak with."""

    provider: Provider
    wall: Wall
    host: Host
    worker: WorkerLink

    async def until(self, holds: Callable[[], bool], seconds: float = FIRST_LOOK_S) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.01)

    def serving(self) -> bool:
        return self.worker.latest is not None and self.worker.latest.health is Health.SERVING


@asynccontextmanager
async def hosted(
    provider: Provider, name: str, *, slots: int = 4, interval_s: float = 3600.0
) -> AsyncIterator[Hosted]:
    """Serving, once the block begins. The provider is closed at its end."""
    ours, theirs = socket.socketpair()
    wall = Wall(name, provider, interval_s=interval_s, allow_dumpable=True)
    one = Hosted(provider, wall, Host(provider, wall, slots=slots), WorkerLink())
    task = asyncio.create_task(one.host.serve(lambda on_frame: Wire(theirs, on_frame)))
    try:
        one.worker.attach(ours)
        await one.until(lambda: one.serving() or task.done())
        yield one
    finally:
        one.worker.detach()
        await task
