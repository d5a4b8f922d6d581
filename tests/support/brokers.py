"""A broker of the tests' own: the real interface over a real socket, with answers that a test can foresee.

Messages are read and answers written as the broker does. The path of a call decides the answer, and every message is kept.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h11

from app.dispatch.link import WorkerLink
from broker.message import Answered, Failed, read_call, write_answer
from plimsoll.contract.requests import Payload
from plimsoll.contract.worker import Job, Lease
from tests.support.runs import Seen, follow, new_id, reserved, spec

LARGE = 4 << 20
WORKER = "worker-1"


def answer(body: bytes | str, status: int = 200) -> bytes:
    """As the broker writes it."""
    content = body.encode() if isinstance(body, str) else body
    return write_answer(Answered(status, (("content-type", "text/plain"),), content))


def failure(code: str, **more: Any) -> bytes:
    return json.dumps({"error": {"code": code, "reason": f"because of {code}", **more}}).encode()


@dataclass
class FakeBroker:
    """`leases` maps a secret to its run and worker; a call without one of them gets 403."""

    url: str
    leases: dict[str, tuple[str, str]] = field(default_factory=dict)
    messages: list[bytes] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    connections: int = 0
    under_way: int = 0
    most_under_way: int = 0
    cancelled: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """A call has come."""
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    """What calls of `/wait` wait for."""

    def lease(self, run_id: str, secret: str = "") -> Lease:
        secret = secret or f"secret-of-{run_id}"
        self.leases[secret] = (run_id, WORKER)
        return Lease(self.url, WORKER, secret)

    async def _answer(self, headers: dict[str, str], message: bytes) -> tuple[int, bytes]:
        self.messages.append(message)
        self.asked.set()
        lease = self.leases.get(headers.get("authorization", "").removeprefix("Bearer "))
        if lease is None or lease != (headers.get("plimsoll-run"), headers.get("plimsoll-worker")):
            return 403, b""
        self.runs.append(lease[0])
        return 200, await self._said(message)

    async def _said(self, message: bytes) -> bytes:
        call = read_call(message)
        if isinstance(call, Failed):
            return failure(call.code.value)
        match call.path.split("/")[1:]:
            case ["echo"]:
                return answer(message)
            case ["status", number]:
                return answer("", int(number))
            case ["bytes"]:
                return answer(bytes(range(256)))
            case ["text"]:
                return answer("größer als ☃")
            case ["large"]:
                return answer("x" * LARGE)
            case ["fail", "shed"]:
                return failure("shed", retry_after_s=7)
            case ["fail", code]:
                return failure(code)
            case ["nonsense"]:
                return b"\xff{"
            case ["wait"]:
                await self.go_on.wait()
                return answer("waited")
            case _:
                return failure("denied")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = h11.Connection(h11.SERVER)
        with contextlib.suppress(OSError, h11.ProtocolError):
            while await self._one(connection, reader, writer):
                connection.start_next_cycle()
        writer.close()

    async def _one(
        self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        headers: dict[str, str] = {}
        message = bytearray()
        while True:
            event: Any = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(1 << 16))
            elif isinstance(event, h11.Request):
                assert (event.method, event.target) == (b"POST", b"/v1/calls")
                headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                message += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return False
        self.under_way += 1
        self.most_under_way = max(self.under_way, self.most_under_way)
        gone = asyncio.create_task(reader.read(1))
        saying = asyncio.create_task(self._answer(headers, bytes(message)))
        await asyncio.wait((gone, saying), return_when=asyncio.FIRST_COMPLETED)
        self.under_way -= 1
        if not saying.done():
            self.cancelled += 1
            saying.cancel()
            return False
        status, body = saying.result()
        gone.cancel()
        await asyncio.wait((gone,))
        head = h11.Response(status_code=status, headers=[("Content-Length", str(len(body)))])
        for out in (head, h11.Data(data=body), h11.EndOfMessage()):
            writer.write(connection.send(out) or b"")
        await writer.drain()
        return connection.our_state is h11.DONE


@contextlib.asynccontextmanager
async def fake_broker(place: Path) -> AsyncIterator[FakeBroker]:
    """One that listens on a socket in `place`."""
    path = str(place / "broker.sock")
    broker = FakeBroker(f"unix://{path}")
    server = await asyncio.start_unix_server(broker.serve, path)
    try:
        yield broker
    finally:
        broker.go_on.set()
        server.close()


async def calling(
    worker: WorkerLink,
    payload: Payload,
    broker: FakeBroker | None,
    *,
    timeout_ms: int,
    run_id: str = "",
    lease: Lease | None = None,
    seen: Seen | None = None,
) -> Seen:
    """One run that may call `broker`, or whatever a `lease` of the test's own is for; with neither it has no grant."""
    wanted = spec(run_id=run_id or new_id(), kind=payload.kind, timeout_ms=timeout_ms)
    if broker is not None:
        lease = broker.lease(wanted.run_id)
    what = Job(wanted.run_id, payload, timeout_ms, wanted.output_bytes, lease=lease)
    return await follow(worker, await reserved(worker, wanted), what, seen)
