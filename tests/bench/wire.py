"""The least HTTP client: a request is ready bytes, an answer is read to its end. So the figures are the service's."""

import re
import selectors
import socket
import time
from collections import Counter
from collections.abc import Sequence
from typing import Self
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]+)\r\n")
_CHUNK = 64 * 1024
_PATIENCE_S = 10.0


class Connection:
    """One kept connection."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self.sock = socket.create_connection((address.hostname, address.port), _PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send and wait: status and body."""
        self.sock.sendall(request)
        while (answer := self.read()) is None:
            pass
        return answer

    def read(self) -> tuple[int, bytes] | None:
        """Take what has come; the answer when it is whole. Raises ConnectionError at the end of file."""
        data = self.sock.recv(_CHUNK)
        if not data:
            raise ConnectionError("the service closed the connection")
        self._buffer += data
        head, blank, body = self._buffer.partition(b"\r\n\r\n")
        length = _LENGTH.search(head + b"\r\n")
        if not blank or length is None or len(body) < int(length[1]):
            return None
        self._buffer = b""
        return int(head[9:12]), body


def post(path: str, body: bytes, token: str) -> bytes:
    """A whole request with a JSON body."""
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


def get(path: str) -> bytes:
    """A whole request without one."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def closed_loop(
    connections: Sequence[Connection], request: bytes, seconds: float
) -> tuple[Counter[int], float]:
    """Ask on every connection again as soon as it answers: how many answers of each status, and in how many seconds."""
    answers: Counter[int] = Counter()
    with selectors.DefaultSelector() as selector:
        for each in connections:
            selector.register(each.sock, selectors.EVENT_READ, each)
            each.sock.sendall(request)
        began, waiting = time.perf_counter(), len(connections)
        while waiting:
            for key, _ in selector.select(_PATIENCE_S):
                answer = key.data.read()
                if answer is None:
                    continue
                answers[answer[0]] += 1
                if time.perf_counter() - began < seconds:
                    key.data.sock.sendall(request)
                else:
                    waiting -= 1
        return answers, time.perf_counter() - began
