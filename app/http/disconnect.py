"""Noticing that a caller went away while its answer is being made."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from starlette.types import Receive

NOTICE_S: Final = 0.01
"""How soon it is noticed. Most answers are made before that, and then nobody has to watch: a task costs more than a timer."""


@contextmanager
def on_disconnect(receive: Receive, gone: Callable[[], None]) -> Iterator[None]:
    """Call `gone` once if the caller hangs up inside the block. The request's body must have been read before."""
    loop = asyncio.get_running_loop()
    watching: list[asyncio.Task[None]] = []
    timer = loop.call_later(NOTICE_S, lambda: watching.append(loop.create_task(_watch(receive, gone))))
    try:
        yield
    finally:
        timer.cancel()
        for watcher in watching:
            watcher.cancel()


async def _watch(receive: Receive, gone: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    gone()
