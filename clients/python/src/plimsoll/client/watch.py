"""The asynchronous transport's events, and what a cancelled call carries away. Shared by `aio` and `streams`."""

import asyncio
from typing import Any, Protocol

from plimsoll.client.core import Prepared
from plimsoll.client.progress import Progress
from plimsoll.contract.refusals import Reason


class _Closable(Protocol):
    async def aclose(self) -> None: ...


class Watch:
    """Hears the transport's events, and closes a connection whose handshake was cancelled: the transport forgets it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._half_open: _Closable | None = None

    async def event(self, name: str, info: dict[str, Any]) -> None:
        self._progress.event(name)
        if name.startswith("connection.connect_") and name.endswith(".complete"):
            self._half_open = info["return_value"]
        elif name == "connection.start_tls.complete" or not name.startswith("connection."):
            self._half_open = None

    async def close(self) -> None:
        if self._half_open is not None:
            await self._half_open.aclose()


def mark(error: asyncio.CancelledError, progress: Progress, prepared: Prepared[Any]) -> None:
    """Let a cancel go on as it is, with what is known about the request on it."""
    proof = progress.mark(Reason.REQUEST) if prepared.starts else None
    error.not_dispatched = proof  # type: ignore[attr-defined]
    error.request_id = prepared.request_id  # type: ignore[attr-defined]
