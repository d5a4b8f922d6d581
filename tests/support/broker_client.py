"""The smallest client of a broker, as a worker's host side would have it: one call, on a connection of its own.

For tests that need no guest, and for those that try a lease that is not theirs. It blocks.
"""

import asyncio
import http.client
import json
import socket
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import override

from plimsoll.contract.worker import Lease
from providers.host.broker import Broker
from providers.host.calls import Calls
from providers.seam import Order


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("broker", timeout=60)
        self._path = path

    @override
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True)
class Client:
    """Shows a lease's secret, or whatever a test wants to try instead."""

    url: str
    secret: str = field(repr=False)
    run_id: str
    worker: str

    @classmethod
    def of(cls, lease: Lease, run_id: str) -> "Client":
        return cls(lease.broker, lease.secret, run_id, lease.worker)

    def send(self, message: bytes) -> tuple[int, bytes]:
        """The status and the body."""
        headers = {
            "authorization": f"Bearer {self.secret}",
            "plimsoll-run": self.run_id,
            "plimsoll-worker": self.worker,
        }
        return request(self.url, "POST", "/v1/calls", message, headers)

    def get(self, path: str, method: str = "GET") -> tuple[int, bytes]:
        return self.send(json.dumps({"method": method, "path": path}).encode())


def request(
    url: str, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """One request to a broker's listener."""
    connection = _Unix(url.removeprefix("unix://"))
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


_LEASES: dict[str, Lease] = {}
"""By run id, what this process's host was given. A provider never sees it; `watch_leases` looks over the host's shoulder."""


def watch_leases() -> None:
    """Remember every lease, for tests that replay one."""
    made = Calls.__init__

    def watched(self: Calls, broker: Broker, lease: Lease, run_id: str) -> None:
        _LEASES[run_id] = lease
        made(self, broker, lease, run_id)

    Calls.__init__ = watched  # type: ignore[method-assign]


async def called(order: Order, value: str) -> bytes:
    """What a call of the effect provider's code prints: the broker's message, or `none` without a lease.

    `show` prints all of the lease, and `show>FILE` writes it there, for tests that replay it.
    """
    if order.call is None:
        return b"none\n"
    if value.partition(">")[0] == "show":
        lease = _LEASES[order.run_id]
        shown = {"url": lease.broker, "secret": lease.secret, "run_id": order.run_id, "worker": lease.worker}
        line = json.dumps(shown).encode() + b"\n"
        if value == "show":
            return line
        await asyncio.to_thread(Path(value.removeprefix("show>")).write_bytes, line)
        return b""
    method, _, path = value.partition("=")
    async with order.call(json.dumps({"method": method, "path": path}).encode()) as answer:
        return answer + b"\n"
