"""The door of a private service (S15): one inherited socket that brings the token and whose end is the service's end.

library -> service   one line: the token of the single caller `local`
service -> library   one line of JSON: {"ready": true, "socket": PATH, "version": V} or {"ready": false, "errors": […]}
end of file          ends the service
"""

import asyncio
import json
import re
import socket
from collections.abc import Callable

from app.identity import Caller, Scope

LOCAL = Caller(id="1" + "0" * 31, name="local", scopes=frozenset({Scope.RUN, Scope.READ_RECORDS}))
_TOKEN = re.compile(rb"[\x21-\x7e]{1,128}")
_FIRST_LINE_S = 10.0
_LINE_BYTES = 256


class DoorBroken(Exception):
    """The inherited descriptor is no socket, or what came through it is no token."""


class PrivateDoor:
    """Owns the inherited socket."""

    def __init__(self, descriptor: int) -> None:
        """Take over `descriptor`. Raises DoorBroken."""
        try:
            self._socket = socket.socket(fileno=descriptor)
        except OSError as error:
            raise DoorBroken("--private-fd: is not an open socket") from error
        self._socket.set_inheritable(False)

    def read_token(self) -> str:
        """The token line, waited for at most ten seconds. Raises DoorBroken."""
        self._socket.settimeout(_FIRST_LINE_S)
        line = bytearray()
        try:
            while not line.endswith(b"\n") and len(line) < _LINE_BYTES:
                byte = self._socket.recv(1)
                if not byte:
                    break
                line += byte
        except OSError as error:
            raise DoorBroken("--private-fd: no token came") from error
        if not _TOKEN.fullmatch(line.strip()):
            raise DoorBroken("--private-fd: the first line is not a token")
        return line.strip().decode("ascii")

    def say(self, message: dict[str, object]) -> None:
        """One line of JSON. A library that is gone already is noticed by `watch`."""
        try:
            self._socket.settimeout(1.0)
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return

    def watch(self, ended: Callable[[], None]) -> None:
        """Call `ended` once when the library closes its end. Inside the running loop."""
        loop = asyncio.get_running_loop()
        self._socket.settimeout(0)

        def readable() -> None:
            try:
                gone = self._socket.recv(4096) == b""
            except BlockingIOError:
                return
            except OSError:
                gone = True
            if gone:
                loop.remove_reader(self._socket)
                ended()

        loop.add_reader(self._socket, readable)

    def close(self) -> None:
        """Close our end."""
        self._socket.close()
