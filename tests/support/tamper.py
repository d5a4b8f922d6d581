"""A hostile intermediary between a client and a real service, over real TCP.

Every request is passed on to the service unchanged, so it has its effect there; what the client then gets is up to a `Tamper`:

    with proxy(service.url, swaps()) as between:
        client = plimsoll.Client(between.url, token)

Each connection carries one request. An answer is read to its end before it is tampered with.
"""

import http.client
import re
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import cast
from urllib.parse import urlsplit

from typing_extensions import override

ID = "plimsoll-request-id"
_PARTNER_S = 20.0
_OWN = {"connection", "content-length", "transfer-encoding"}

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Answer:
    """An answer of the service; names of headers in lower case."""

    status: int
    headers: Headers
    body: bytes

    def without(self, name: str) -> "Answer":
        return replace(self, headers=tuple(each for each in self.headers if each[0] != name))

    def under(self, request_id: str) -> "Answer":
        """The same answer as if it were the one to the request with this id."""
        rest = self.without(ID)
        return replace(rest, headers=((ID, request_id), *rest.headers))

    def bytes(self) -> bytes:
        own = (("content-length", str(len(self.body))), ("connection", "close"))
        headers = [each for each in self.headers if each[0] not in _OWN]
        lines = [f"HTTP/1.1 {self.status} X", *(f"{name}: {value}" for name, value in (*headers, *own))]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


@dataclass(frozen=True)
class Request:
    """A request as it came."""

    method: str
    target: str
    headers: Headers
    body: bytes = field(repr=False)

    @property
    def id(self) -> str:
        return next((value for name, value in self.headers if name.lower() == ID), "")


@dataclass
class Passage:
    """One request on its way: what the service answered, and the client that waits."""

    request: Request
    answer: Answer
    client: socket.socket

    def send(self, answer: Answer) -> None:
        self.client.sendall(answer.bytes())


Tamper = Callable[[Passage], None]


# --- what can be done to an answer ---------------------------------------------------------------------------------------


def honest(passage: Passage) -> None:
    """Nothing."""
    passage.send(passage.answer)


def drops_id(passage: Passage) -> None:
    """The answer no longer says which request it belongs to."""
    passage.send(passage.answer.without(ID))


def alters(pattern: bytes, by: bytes) -> Tamper:
    """Other bytes in the body. Fails in the client's place when `pattern` is not in it, since nothing would be tested."""

    def tamper(passage: Passage) -> None:
        body, count = re.subn(pattern, by, passage.answer.body)
        passage.send(replace(passage.answer, body=body if count else b"nothing to alter"))

    return tamper


def swaps(*, rebound: bool = False) -> Tamper:
    """Two requests at once get each other's answers, with `rebound` each under the id that its client expects."""
    both = threading.Barrier(2)
    answers: dict[str, Answer] = {}

    def tamper(passage: Passage) -> None:
        answers[passage.request.id] = passage.answer
        both.wait(_PARTNER_S)
        other = next(answer for request_id, answer in answers.items() if request_id != passage.request.id)
        passage.send(other.under(passage.request.id) if rebound else other)

    return tamper


def replays(*, rebound: bool = False) -> Tamper:
    """The first answer again for every later request, with `rebound` under the fresh id."""
    kept: list[Answer] = []

    def tamper(passage: Passage) -> None:
        kept.append(passage.answer)
        passage.send(kept[0].under(passage.request.id) if rebound else kept[0])

    return tamper


def redirects(passage: Passage) -> None:
    """Go elsewhere with your token and your code."""
    moved = (("location", "/elsewhere"), (ID, passage.request.id))
    passage.send(Answer(307, moved, b""))


def trickles(pause: float) -> Tamper:
    """The true answer, a byte at a time."""

    def tamper(passage: Passage) -> None:
        for byte in passage.answer.bytes():
            passage.client.sendall(bytes([byte]))
            time.sleep(pause)

    return tamper


def cuts(passage: Passage) -> None:
    """The connection ends in the middle of the body."""
    data = passage.answer.bytes()
    passage.client.sendall(data[: len(data) - len(passage.answer.body) // 2 - 1])


# --- the proxy -----------------------------------------------------------------------------------------------------------


@dataclass
class Proxy:
    """Where a client connects, and the requests seen so far."""

    url: str
    requests: list[Request] = field(default_factory=list)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    upstream: str
    tamper: Tamper
    proxy: Proxy

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """A client may hang up at any time: that is what many of these tests are about."""


class _Handler(socketserver.StreamRequestHandler):
    @override
    def handle(self) -> None:
        server = cast("_Server", self.server)
        if (request := self._request()) is None:
            return
        server.proxy.requests.append(request)
        with suppress(OSError):
            server.tamper(Passage(request, _pass_on(server.upstream, request), self.connection))

    def _request(self) -> Request | None:
        words = self.rfile.readline().decode("latin-1").split()
        if len(words) != 3:
            return None
        headers = []
        while (line := self.rfile.readline().decode("latin-1").strip()) != "":
            name, _, value = line.partition(":")
            headers.append((name, value.strip()))
        size = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
        return Request(words[0], words[1], tuple(headers), self.rfile.read(size))


def _pass_on(upstream: str, request: Request) -> Answer:
    connection = http.client.HTTPConnection(urlsplit(upstream).netloc, timeout=60)
    try:
        connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers:
            connection.putheader(name, value)
        connection.endheaders(request.body)
        came = connection.getresponse()
        headers = tuple((name.lower(), value) for name, value in came.getheaders())
        return Answer(came.status, headers, came.read())
    finally:
        connection.close()


@contextmanager
def proxy(upstream: str, tamper: Tamper) -> Iterator[Proxy]:
    """The intermediary in front of the service at `upstream`, for the length of the block."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.upstream, server.tamper = upstream, tamper
        server.proxy = Proxy("http://{}:{}".format(*server.server_address[:2]))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.proxy
        finally:
            server.shutdown()
            thread.join()
