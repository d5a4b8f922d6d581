"""Requests over a bare socket, for callers that hang up, read slowly, or read the events of a stream as they come."""

import json
import selectors
import socket
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.integration.service.stand import EVENTS, NONE, Event, bearer, events_in, run_body


class Line:
    """One connection with one `POST /v1/runs` on it. `buffer` bounds what the kernel takes for a caller that does not read."""

    def __init__(
        self,
        url: str,
        code: str,
        headers: Mapping[str, str] = NONE,
        *,
        token: str = "",
        buffer: int = 0,
    ) -> None:
        at = urlsplit(url)
        self.sock = socket.socket()
        if buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.sock.settimeout(30)
        self.data = b""
        body = json.dumps(run_body(code)).encode()
        lines = {
            "host": at.netloc,
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            **headers,
            **bearer(token),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        try:
            self.sock.connect((at.hostname, at.port))
            self.sock.sendall(f"POST /v1/runs HTTP/1.1\r\n{head}\r\n".encode() + body)
        except OSError:
            self.sock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up."""
        self.sock.close()

    def read(self, size: int = 65536) -> bool:
        """Take what is there; False at the end."""
        try:
            more = self.sock.recv(size)
        except ConnectionResetError:
            more = b""
        self.data += more
        return bool(more)

    def until(self, text: bytes) -> float:
        """Read until `text` has come; when that was."""
        while text not in self.data:
            assert self.read(), self.data
        return time.monotonic()

    def rest(self) -> bytes:
        """Everything, to the connection's end."""
        while self.read():
            pass
        return self.data

    def body(self) -> bytes:
        """The body of the answer so far, its chunks joined; whatever of it is cut is left out."""
        head, _, rest = self.data.partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" not in head.lower():
            return rest
        joined = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            length = int(size or b"0", 16)
            if not length:
                break
            joined, rest = joined + rest[:length], rest[length + 2 :]
        return joined

    def events(self) -> list[Event]:
        """The events so far."""
        return events_in(self.body())


def drain(lines: Iterable[Line]) -> None:
    """Read them all to their ends, each whenever it has something, so that none is cut as stalled."""
    with selectors.DefaultSelector() as ready:
        for line in lines:
            ready.register(line.sock, selectors.EVENT_READ, line)
        while ready.get_map():
            for key, _ in ready.select(30):
                if not key.data.read():
                    ready.unregister(key.fileobj)


def stream(
    url: str, code: str, headers: Mapping[str, str] = NONE, *, token: str = "", buffer: int = 0
) -> Line:
    """A stream's connection."""
    return Line(url, code, {**headers, **EVENTS}, token=token, buffer=buffer)
