"""Noticing that a caller went away while its answer is being made."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import Receive


@contextmanager
def on_disconnect(receive: Receive, gone: Callable[[], None]) -> Iterator[None]:
    """Call `gone` once if the caller hangs up inside the block. The request's body must have been read before."""
    watcher = asyncio.create_task(_watch(receive, gone))
    try:
        yield
    finally:
        watcher.cancel()


async def _watch(receive: Receive, gone: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    gone()
