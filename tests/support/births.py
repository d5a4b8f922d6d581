"""Every container that a daemon ever had while somebody listened, with the times of its life, by the daemon's own word.

So what a container left can be looked for by its id, on a machine where other daemons have containers too.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

from tests.support.docker import API, Daemon

KINDS: Final = ("create", "start", "die", "destroy")


class Births:
    """Use as a context manager; it listens again when the daemon is back. Times are seconds since the epoch."""

    def __init__(self, daemon: Daemon) -> None:
        """Nothing is heard yet."""
        self._daemon = daemon
        self._heard = threading.Condition()
        self._closed = False
        self._connected = threading.Event()
        self._stream: socket.socket | None = None
        self._thread = threading.Thread(target=self._listen, name="births", daemon=True)
        self.times: dict[str, dict[str, float]] = {}
        """What was heard of each container and when it happened: one of KINDS."""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._connected.wait(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            if self._stream is not None:
                self._stream.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)

    @property
    def ids(self) -> frozenset[str]:
        """Of all that were ever made."""
        with self._heard:
            return frozenset(self.times)

    def alive(self) -> dict[str, float]:
        """When each that runs was started."""
        with self._heard:
            return {
                each: times["start"]
                for each, times in self.times.items()
                if "start" in times and not times.keys() & {"die", "destroy"}
            }

    def until(self, holds: Callable[[], bool], seconds: float) -> None:
        """Wait, looking whenever something is heard. Raises TimeoutError."""
        end = time.monotonic() + seconds
        with self._heard:
            while not holds():
                left = end - time.monotonic()
                if left < 0:
                    raise TimeoutError
                self._heard.wait(min(left, 0.05))

    def gone(self, container: str, seconds: float = 60) -> float:
        """When it was gone, waiting for that."""
        self.until(lambda: "destroy" in self.times.get(container, {}), seconds)
        return self.times[container]["destroy"]

    def _listen(self) -> None:
        while not self._closed:
            with contextlib.suppress(OSError):
                self._hear()
            time.sleep(0.05)

    def _hear(self) -> None:
        filters = quote(json.dumps({"type": ["container"], "event": list(KINDS)}))
        with socket.socket(socket.AF_UNIX) as stream:
            self._stream = stream
            stream.connect(self._daemon.socket)
            stream.sendall(f"GET {API}/events?filters={filters} HTTP/1.0\r\nHost: docker\r\n\r\n".encode())
            with stream.makefile("rb") as lines:
                while lines.readline().strip():
                    pass
                self._connected.set()
                for line in lines:
                    self._note(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        with self._heard:
            self.times.setdefault(event["id"], {})[event["Action"]] = event["timeNano"] / 1e9
            self._heard.notify_all()
