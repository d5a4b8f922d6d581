"""A hostile service on real loopback sockets: each connection is answered by a function that may do anything."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.unit.plimsoll import honest

Behaviour = Callable[["Seen", socket.socket], None]


@dataclass
class Seen:
    """One request as it arrived."""

    head: str
    body: bytes

    @property
    def request_id(self) -> str:
        return self.header("plimsoll-request-id")

    def header(self, name: str) -> str:
        lines = (line.partition(":") for line in self.head.split("\r\n")[1:])
        return next((value.strip() for key, _, value in lines if key.lower() == name), "")

    def honest(self, **how: Any) -> dict[str, Any]:
        """The true answer to this request, at this moment."""
        now = time.time_ns() // 1_000_000
        return honest.run_answer(honest.request_of(self.body), now=now, **how)


@dataclass
class Stub:
    """The listening service; `seen` are all requests so far."""

    behaviour: Behaviour
    port: int
    seen: list[Seen] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def answer(
    seen: Seen,
    body: object,
    *,
    status: int = 200,
    request_id: str | None = None,
    headers: tuple[str, ...] = (),
    content_type: str = "application/json",
) -> bytes:
    """A complete answer's bytes; the request's own id unless told otherwise (empty: none)."""
    data = body if isinstance(body, bytes) else honest.dumped(body)
    own = seen.request_id if request_id is None else request_id
    lines = [f"HTTP/1.1 {status} X", f"content-type: {content_type}", f"content-length: {len(data)}"]
    lines += [f"plimsoll-request-id: {own}"] if own else []
    return "\r\n".join([*lines, "connection: close", *headers, "", ""]).encode("latin-1") + data


def stream_head(seen: Seen, *, request_id: str | None = None, status: int = 200) -> bytes:
    """The head of an event stream in chunked transfer; the request's own id unless told otherwise (empty: none)."""
    own = seen.request_id if request_id is None else request_id
    lines = [
        f"HTTP/1.1 {status} X",
        "content-type: text/event-stream; charset=utf-8",
        "transfer-encoding: chunked",
    ]
    lines += [f"plimsoll-request-id: {own}"] if own else []
    return "\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """One piece of a chunked body; an empty one ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def stream(seen: Seen, *events: bytes, whole: bool = True, request_id: str | None = None) -> bytes:
    """A whole stream's bytes, without its end unless `whole`."""
    head = stream_head(seen, request_id=request_id)
    return head + b"".join(map(chunk, events)) + (chunk(b"") if whole else b"")


def sends(make: Callable[[Seen], bytes]) -> Behaviour:
    """Answer with the bytes that `make` gives."""

    def behave(seen: Seen, connection: socket.socket) -> None:
        connection.sendall(make(seen))

    return behave


def trickle(data: Callable[[Seen], bytes], pause: float) -> Behaviour:
    """Answer one byte at a time, for ever at the end."""

    def behave(seen: Seen, connection: socket.socket) -> None:
        for byte in data(seen):
            connection.sendall(bytes([byte]))
            time.sleep(pause)

    return behave


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[Stub]:
    """Serve until the block ends; every connection has a thread of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stub = Stub(behaviour, listener.getsockname()[1])
        done = threading.Event()
        threads = [threading.Thread(target=_accept, args=(listener, stub, done))]
        threads[0].start()
        try:
            yield stub
        finally:
            done.set()
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", stub.port), 1).close()
            threads[0].join()


def _accept(listener: socket.socket, stub: Stub, done: threading.Event) -> None:
    workers = []
    while not done.is_set():
        connection, _ = listener.accept()
        worker = threading.Thread(target=_serve, args=(connection, stub))
        worker.start()
        workers.append(worker)
    for worker in workers:
        worker.join()


def _serve(connection: socket.socket, stub: Stub) -> None:
    with connection, suppress(OSError):
        connection.settimeout(10)
        data = b""
        while b"\r\n\r\n" not in data:
            part = connection.recv(65536)
            if not part:
                return
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        seen = Seen(head.decode("latin-1"), b"")
        while len(body) < int(seen.header("content-length") or 0):
            body += connection.recv(65536)
        seen.body = body
        stub.seen.append(seen)
        stub.behaviour(seen, connection)
