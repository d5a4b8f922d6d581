"""A TCP proxy in front of Postgres that goes away on demand: at once, or around the next COMMIT of a writing transaction.

It sees what asyncpg sends as it is (no TLS), so a commit is the simple query `COMMIT;`. Whether one was lost before or after
the server saw it is what a client can never tell.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

How = Literal["keep", "drop", "delay"]
Pair = tuple[socket.socket, socket.socket]
"""The client's end and the server's."""
COMMIT = b"COMMIT;\x00"
DELAY_S = 2.0


class Proxy:
    """Forwards connections on `port` to a server's Unix socket."""

    def __init__(self, server: Path) -> None:
        self._server = str(next(server.glob(".s.PGSQL.*[0-9]")))
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self._pairs: set[Pair] = set()
        self._lock = threading.Lock()
        self._down = False
        self._at_commit: tuple[How, int] | None = None
        self._struck = threading.Event()
        """It is not just about to go away."""
        self._struck.set()

    def url(self) -> str:
        return f"postgresql+asyncpg://postgres@127.0.0.1:{self.port}/postgres"

    def serve(self) -> None:
        while True:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            with self._lock:
                if self._down:
                    near.close()
                    continue
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._server)
                pair = (near, far)
                self._pairs.add(pair)
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self._pump, args=(source, sink, pair), daemon=True).start()

    def close(self) -> None:
        self._door.close()
        self.cut()

    def cut(self) -> None:
        """End every connection and take no new one."""
        with self._lock:
            self._down = True
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            _end(*pair)

    def mend(self) -> None:
        """Take connections again. Who lost a COMMIT may know of it before it has gone away altogether: that comes first."""
        assert self._struck.wait(60)
        self._down = False

    def disarm(self) -> None:
        """No COMMIT is waited for any more."""
        self._at_commit = None

    def at_commit(self, how: How, *, nth: int = 1) -> None:
        """Go away at the nth COMMIT from now.

        After the server got it (`keep`), before (`drop`), or before it and handing it over when the client has given up
        (`delay`).
        """
        self._at_commit = (how, nth)

    def _due(self, data: bytes) -> How | None:
        with self._lock:
            if self._at_commit is None or COMMIT not in data:
                return None
            how, nth = self._at_commit
            self._at_commit = (how, nth - 1) if nth > 1 else None
            if nth > 1:
                return None
            self._struck.clear()
            return how

    def _pump(self, source: socket.socket, sink: socket.socket, pair: Pair) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if source is pair[0] and (how := self._due(data)):
                    self._strike(how, data, pair)
                    return
                sink.sendall(data)
        with self._lock:
            self._pairs.discard(pair)
        _end(*pair)

    def _strike(self, how: How, data: bytes, pair: Pair) -> None:
        near, far = pair
        with self._lock:
            self._pairs.discard(pair)
        try:
            if how == "keep":
                near.shutdown(socket.SHUT_RDWR)  # nothing of the answer gets through
                far.sendall(data)
                far.settimeout(5)
                with suppress(OSError):  # whoever brings answers back may be quicker, and end it
                    far.recv(4096)
            self.cut()
        finally:
            self._struck.set()
        if how == "delay":
            _end(near)
            self.mend()
            time.sleep(DELAY_S)
            far.sendall(data)
            far.recv(4096)
        _end(near, far)


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


@contextmanager
def proxied(server: Path) -> Iterator[Proxy]:
    proxy = Proxy(server)
    threading.Thread(target=proxy.serve, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.close()
