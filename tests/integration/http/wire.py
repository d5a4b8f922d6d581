"""A real listener on loopback in a thread of its own, and a client that writes raw bytes."""

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from fastapi import FastAPI, Request, Response

from app import log
from app.http.answers import exception_handlers, problem_response, read_body
from app.http.ids import caller_of
from app.http.limits import ListenerLimits
from app.http.listener import Server, bind_tcp, make_server
from app.http.middleware import Access, rim
from app.http.strict import read_run
from app.identity import Caller, mint_token, token_sha256
from plimsoll.contract.refusals import Refusal

TOKEN = mint_token(lambda size: b"t" * size)
CALLER = Caller(id="c" * 32, name="tester")
CANARY = "canary-7f3a"
RUN = json.dumps({"payload": {"kind": "javascript", "code": "1"}}).encode()
SHORT = ListenerLimits(
    head_s=0.6,
    body_s=2.0,
    body_grace_s=0.5,
    body_bytes=64 * 1024,
    body_chunks=64,
    connections=12,
    per_address=8,
    turned_away=4,
    keep_alive_s=0.6,
    stall_s=0.6,
    drain_s=0.6,
    drain_bytes=256 * 1024,
)


def make_app(limits: ListenerLimits) -> FastAPI:
    app = FastAPI(
        exception_handlers=exception_handlers(), redirect_slashes=False, openapi_url=None, docs_url=None
    )

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/v1/runs")
    async def runs(request: Request) -> Response:
        body = await read_body(request.receive, limits.body_bytes)
        run = body if isinstance(body, Refusal) else read_run(body)
        if isinstance(run, Refusal):
            return problem_response(request.scope, run)
        return Response(json.dumps({"caller": caller_of(request.scope).name}), media_type="application/json")

    @app.post("/v1/broken")
    async def broken(request: Request) -> Response:
        raise RuntimeError((await request.body()).decode())

    @app.get("/v1/big")
    async def big(size: int) -> Response:
        return Response(b"x" * size)

    return app


@dataclass
class Answer:
    """One answer as it came from the socket."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name]
        assert len(found) <= 1, f"{name} twice"
        return found[0] if found else None

    @property
    def problem(self) -> dict[str, Any]:
        assert self.header("content-type") == "application/problem+json"
        document: dict[str, Any] = json.loads(self.body)
        assert document["status"] == self.status
        assert document["request_id"] == self.header("plimsoll-request-id")
        mark = document.get("not_dispatched", {}).get("reason")
        assert mark == self.header("plimsoll-not-dispatched")
        return document


class Wire:
    """One connection."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._file = connected.makefile("rb")

    def send(self, *parts: bytes) -> "Wire":
        for part in parts:
            self.socket.sendall(part)
        return self

    def answer(self) -> Answer:
        """Read one answer."""
        found = self.answer_without_body()
        found.body = self._file.read(int(found.header("content-length") or "0"))
        return found

    def answer_without_body(self) -> Answer:
        """Read the header of one answer."""
        line = self._file.readline()
        assert line.startswith(b"HTTP/1.1 "), line
        headers = []
        while (field_line := self._file.readline()) not in {b"\r\n", b""}:
            name, _, value = field_line.decode("latin-1").partition(":")
            headers.append((name.lower(), value.strip()))
        return Answer(int(line[9:12]), headers, b"")

    def ended(self) -> bool:
        """Whether the server ends the connection without another byte."""
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._file.close()
        self.socket.close()


def connect(address: tuple[str, int], source: str | None = None) -> Wire:
    """A TCP connection, from `source` when it is given."""
    return Wire(socket.create_connection(address, 10, (source, 0) if source else None))


@dataclass
class Service:
    """A running listener."""

    server: Server
    address: tuple[str, int]
    log: StringIO
    lookups: list[str] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)

    def connect(self, source: str | None = None) -> Wire:
        wire = connect(self.address, source)
        self.wires.append(wire)
        return wire

    def ask(self, *parts: bytes) -> Answer:
        return self.connect().send(*parts).answer()


@contextmanager
def running(limits: ListenerLimits, **options: Any) -> Iterator[Service]:
    """A service in a thread; ready when this yields, gone when it ends."""
    lines = StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level
    log.configure_logging(lines)
    ready = threading.Event()
    lookups: list[str] = []

    async def authenticate(digest: str) -> Caller | None:
        lookups.append(digest)
        return CALLER if digest == token_sha256(TOKEN) else None

    access = Access(authenticate, frozenset({"localhost"}), token_hint="make one with plimsoll-admin")
    bound = bind_tcp("127.0.0.1", 0)
    address = bound.getsockname()
    server = make_server(
        rim(make_app(limits), access), limits=limits, on_ready=ready.set, grace_s=2, **options
    )
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[bound])))
    thread.start()
    assert ready.wait(10)
    service = Service(server, address, lines, lookups)
    try:
        yield service
    finally:
        for wire in service.wires:
            wire.close()
        server.stop()
        thread.join(10)
        root.handlers[:], root.level = before
        logging.captureWarnings(capture=False)
        assert not thread.is_alive()


def head(method: str = "POST", path: str = "/v1/runs", *more: str, token: str | None = TOKEN) -> bytes:
    """A header with what an honest caller sends, and `more` lines."""
    own = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    if token is not None:
        own.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*own, *more, "", ""]).encode("latin-1")


def with_body(body: bytes, *more: str, path: str = "/v1/runs", token: str | None = TOKEN) -> bytes:
    """A POST of JSON."""
    own = ("Content-Type: application/json", f"Content-Length: {len(body)}")
    return head("POST", path, *own, *more, token=token) + body


def until(check: Callable[[], bool], seconds: float = 5) -> None:
    """Wait for something another thread does."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
