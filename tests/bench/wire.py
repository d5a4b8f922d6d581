"""The least HTTP client: a request is ready bytes, an answer is read to its end. So the figures are the service's."""

import re
import selectors
import socket
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Self
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]+)\r\n")
_CHUNK = 64 * 1024
_PATIENCE_S = 10.0
PAUSE_S = 0.02
"""How long a caller that was refused waits."""


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


def post(path: str, body: bytes, token: str, *more: str) -> bytes:
    """A whole request with a JSON body; `more` are header lines."""
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *more,
    )
    return "\r\n".join((*lines, "", "")).encode() + body


def get(path: str) -> bytes:
    """A whole request without one."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def closed_loop(
    connections: Sequence[Connection], requests: Sequence[bytes], seconds: float
) -> tuple[Counter[int], float]:
    """Ask on every connection again as soon as it answers, a little later after a refusal.

    How many answers of each status, and in how many seconds.
    """
    answers: Counter[int] = Counter()
    paused: deque[tuple[float, int]] = deque()
    with selectors.DefaultSelector() as selector:
        for at, each in enumerate(connections):
            selector.register(each.sock, selectors.EVENT_READ, at)
            each.sock.sendall(requests[at])
        began, waiting = time.perf_counter(), len(connections)
        until = began + seconds
        while waiting:
            for key, _ in selector.select(PAUSE_S if paused else _PATIENCE_S):
                answer = connections[key.data].read()
                if answer is None:
                    continue
                answers[answer[0]] += 1
                now = time.perf_counter()
                if now >= until:
                    waiting -= 1
                elif answer[0] == 200:  # the status, by its number
                    connections[key.data].sock.sendall(requests[key.data])
                else:
                    paused.append((now + PAUSE_S, key.data))
            while paused and paused[0][0] <= time.perf_counter():
                at = paused.popleft()[1]
                connections[at].sock.sendall(requests[at])
        return answers, time.perf_counter() - began
