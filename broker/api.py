"""The broker over HTTP, for two sorts of askers that cannot pass for each other.

    POST /v1/calls               a worker, with its lease's secret: one message of its guest, and the answer's message
    POST /v1/leases              the service, with the control secret: a new lease's secret, or a fault's code
    POST /v1/leases/{run}/close  the service: the end of the run's calls, and their trace
    GET  /v1/health              anybody: 204

A worker whose lease is unknown, closed or another's gets 403 and nothing else, before its message is read. What a guest is to
know (denied, shed, over budget) is inside a message with status 200.
"""

import asyncio
import hmac
import importlib
import json
import sys
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, Final

from broker.desk import Desk
from broker.message import Failed, write_answer
from plimsoll.contract import bounds, codec
from plimsoll.contract.grants import MESSAGE_BYTES, CallCode
from plimsoll.contract.leases import Closed, Registered, Registration

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Answer = tuple[int, bytes]

CONTROL_BYTES: Final = 4 << 20
"""A sealed box as base64, and the profile beside it."""
BODY_S: Final = 20.0
_PIECE: Final = 256 << 10
_BUSY: Final = write_answer(Failed(CallCode.SHED, "the broker is full", 1))
_FORBIDDEN: Final[Answer] = (403, b"")
_NOT_FOUND: Final[Answer] = (404, b"")


class _Gone(Exception):
    """The asker went away, or took too long."""


class Api:
    """An ASGI application over one desk."""

    def __init__(self, desk: Desk, control: bytes) -> None:
        """`control` is the service's secret."""
        self._desk, self._control = desk, control

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        async with AsyncExitStack() as held:
            try:
                status, body = await self._answered(scope, receive, held)
            except _Gone:
                status, body = 408, b""
            except Exception as error:  # noqa: BLE001  # whatever fails in one request, the others go on
                _log("broker.failed", error)
                status, body = 500, b""
            await _say(send, status, body)

    async def _answered(self, scope: Scope, receive: Receive, held: AsyncExitStack) -> Answer:
        """`held` is what the answer takes up until it was sent."""
        match (scope["method"], scope["path"].split("/")[1:]):
            case ("POST", ["v1", "calls"]):
                return await self._call(scope, receive, held)
            case ("POST", ["v1", "leases"]):
                return await self._register(receive) if self._controls(scope) else _FORBIDDEN
            case ("POST", ["v1", "leases", run_id, "close"]) if bounds.RUN_ID.fullmatch(run_id):
                return await self._close(run_id) if self._controls(scope) else _FORBIDDEN
            case ("GET", ["v1", "health"]):
                return 204, b""
            case _:
                return _NOT_FOUND

    async def _call(self, scope: Scope, receive: Receive, held: AsyncExitStack) -> Answer:
        run_id, worker = _header(scope, b"plimsoll-run"), _header(scope, b"plimsoll-worker")
        calls = self._desk.calls_of(_bearer(scope), run_id, worker)
        if calls is None:
            return _FORBIDDEN
        take = held.enter_context(self._desk.gate.hold(run_id))
        if take is None:
            return 200, _BUSY
        message = await _body(receive, MESSAGE_BYTES, take)
        return 200, _BUSY if message is None else await held.enter_async_context(calls.call(message))

    async def _register(self, receive: Receive) -> Answer:
        body = await _body(receive, CONTROL_BYTES, lambda _: True)
        try:
            asked = codec.loads(Registration, body or b"")
        except ValueError:
            return 422, b""
        given = await self._desk.register(asked)
        told = Registered(secret=given) if type(given) is str else Registered(fault=str(given))
        return 200, codec.dumps(told)

    async def _close(self, run_id: str) -> Answer:
        return 200, codec.dumps(Closed(await self._desk.close(run_id)))

    def _controls(self, scope: Scope) -> bool:
        return hmac.compare_digest(_bearer(scope).encode("latin-1"), self._control)


async def _say(send: Send, status: int, body: bytes) -> None:
    """In pieces, each once the one before it is nearly gone: so an answer is here until whoever asked has most of it."""
    headers = [(b"content-length", str(len(body)).encode()), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for start in range(0, len(body) or 1, _PIECE):
        piece = {"body": body[start : start + _PIECE], "more_body": start + _PIECE < len(body)}
        await send({"type": "http.response.body", **piece})


def _header(scope: Scope, name: bytes) -> str:
    """The one value of a header; one that is there twice, or not at all, is nobody's."""
    found = [value for each, value in scope["headers"] if each == name]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def _bearer(scope: Scope) -> str:
    scheme, _, secret = _header(scope, b"authorization").partition(" ")
    return secret if scheme.lower() == "bearer" else ""


async def _body(receive: Receive, most: int, take: Callable[[int], bool]) -> bytes | None:
    """The body, cut one byte behind `most`, which is as much as saying that it is too long; None when there is no room."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            while len(body) <= most:
                part = await receive()
                if part["type"] == "http.disconnect":
                    raise _Gone
                data = part.get("body", b"")
                if not take(len(data)):
                    return None
                body += data
                if not part.get("more_body", False):
                    break
    except TimeoutError:
        raise _Gone from None
    return bytes(body[: most + 1])


def load() -> None:
    """Have loaded what is otherwise loaded with the first request: later its files may be out of reach."""
    codec.dumps(Registered())
    codec.dumps(Closed())
    with suppress(ValueError):
        codec.loads(Registration, b"{}")
    importlib.import_module("anyio._backends._asyncio")


def _log(event: str, error: BaseException) -> None:
    """Type and place of an exception; its text could repeat what nobody may read."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    place = f"{PurePath(frames[0].filename).name}:{frames[0].lineno}" if frames else "?"
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = {"time": time, "level": "error", "event": event, "error": type(error).__name__, "place": place}
    sys.stderr.write(json.dumps(line) + "\n")
