"""What guests make calls through: a Unix socket of the agent's, one connection for one call.

A guest sends `u32 length | message` and gets `u32 length | answer`. Every byte of it is untrusted, and carried without being
read. The socket lies where guests can neither remove nor replace it, and is there only in a run that may make calls, for as
long as the run goes on. Bounds: so many connections, of which so many have a message or an answer here, and so many calls and
bytes in a run. The host has bounds of its own (providers/docker/frames.py), and ends a run that goes beyond them.
"""

import json
import os
import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

PATH = "/dev/shm/plimsoll-calls"  # noqa: S108  # a folder with the sticky bit: only its owner removes a file of it
MESSAGE_BYTES = 2 << 20
ANSWER_BYTES = 16 << 20
IN_FLIGHT = 16
CALLS = 100_000
CALLS_BYTES = 1 << 30
CHUNK = 512 << 10
CONNECTIONS = 64
QUEUE = 1024

_LENGTH = struct.Struct(">I")
_READ = 1 << 16

Send = Callable[[dict[str, object], bytes], None]


@dataclass(eq=False)
class _Guest:
    """One connection: first its length comes, then, when it has one of the places, its message; then its answer goes."""

    sock: socket.socket
    length: int | None = None
    data: bytearray = field(default_factory=bytearray)
    number: int = 0
    answer: memoryview | None = None


class Channel:
    """It lives in the agent's loop: `selector` calls what is registered with it."""

    def __init__(self, selector: selectors.BaseSelector, send: Send, path: str = PATH) -> None:
        """Guests may connect from now on. Raises OSError. `send` takes frames for the host."""
        self._selector, self._send, self._path = selector, send, path
        self._guests: set[_Guest] = set()
        self._waiting: deque[_Guest] = deque()
        self._placed: set[_Guest] = set()
        self._asked: dict[int, _Guest] = {}
        self._calls = self._bytes = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        os.chmod(path, 0o666)  # noqa: PTH101, S103  # the guest's uid is to connect
        self._listener.listen(QUEUE)
        self._listener.settimeout(0)
        self._listening = False
        self._listen()

    def close(self) -> None:
        """No call from now on. Again is fine."""
        for guest in list(self._guests):
            self._forget(guest, listen=False)
        self._waiting.clear()
        if self._listening:
            self._selector.unregister(self._listener)
            self._listening = False
        self._listener.close()
        with suppress(OSError):
            os.unlink(self._path)  # noqa: PTH108  # no more imports than needed

    def answered(self, number: int, size: int, part: bytes) -> None:
        """Some of an answer came from the host. The guest may be gone."""
        guest = self._asked.get(number)
        if guest is None:
            return
        guest.data += part
        if len(guest.data) >= min(size, ANSWER_BYTES):
            del self._asked[number]
            self._reply(guest, bytes(guest.data))

    # --- guests ---------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Take connections while there is room for one; the others wait in the kernel."""
        wanted = len(self._guests) < CONNECTIONS
        if wanted and not self._listening:
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        elif self._listening and not wanted:
            self._selector.unregister(self._listener)
        self._listening = wanted

    def _accept(self) -> None:
        with suppress(OSError):
            sock, _ = self._listener.accept()
            sock.settimeout(0)
            guest = _Guest(sock)
            self._guests.add(guest)
            self._selector.register(sock, selectors.EVENT_READ, lambda: self._hear(guest))
            self._listen()

    def _hear(self, guest: _Guest) -> None:
        """More of the length or of the message."""
        wanted = _LENGTH.size if guest.length is None else guest.length
        try:
            part = guest.sock.recv(min(wanted - len(guest.data), _READ))
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self._forget(guest)
            return
        guest.data += part
        if len(guest.data) == wanted:
            self._measured(guest) if guest.length is None else self._ask(guest)

    def _measured(self, guest: _Guest) -> None:
        (guest.length,) = _LENGTH.unpack(guest.data)
        guest.data.clear()
        if not 0 < guest.length <= MESSAGE_BYTES:
            self._forget(guest)
            return
        self._selector.unregister(guest.sock)
        self._waiting.append(guest)
        self._place()

    def _place(self) -> None:
        """Read the messages of as many as there are places."""
        while self._waiting and len(self._placed) < IN_FLIGHT:
            guest = self._waiting.popleft()
            if guest in self._guests:
                self._placed.add(guest)
                self._selector.register(guest.sock, selectors.EVENT_READ, lambda g=guest: self._hear(g))

    def _ask(self, guest: _Guest) -> None:
        self._selector.unregister(guest.sock)
        message, size = bytes(guest.data), len(guest.data)
        guest.data.clear()
        if self._calls >= CALLS or self._bytes + size > CALLS_BYTES:
            self._reply(
                guest, _failed("budget", f"a run may make {CALLS} calls of {CALLS_BYTES} bytes together")
            )
            return
        self._calls += 1
        self._bytes += size
        guest.number = self._calls
        self._asked[guest.number] = guest
        for start in range(0, size, CHUNK):
            header: dict[str, object] = {"t": "call", "n": guest.number, "size": size}
            self._send(header, message[start : start + CHUNK])

    def _reply(self, guest: _Guest, answer: bytes) -> None:
        guest.data.clear()
        guest.answer = memoryview(_LENGTH.pack(len(answer)) + answer)
        self._selector.register(guest.sock, selectors.EVENT_WRITE, lambda: self._write(guest))

    def _write(self, guest: _Guest) -> None:
        try:
            sent = guest.sock.send(guest.answer or b"")
        except BlockingIOError:
            return
        except OSError:
            self._forget(guest)
            return
        guest.answer = (guest.answer or memoryview(b""))[sent:]
        if not guest.answer:
            self._forget(guest)

    def _forget(self, guest: _Guest, *, listen: bool = True) -> None:
        self._guests.discard(guest)
        self._placed.discard(guest)
        self._asked.pop(guest.number, None)
        if guest.sock in self._selector.get_map():
            self._selector.unregister(guest.sock)
        guest.sock.close()
        if listen:
            self._place()
            self._listen()


def _failed(code: str, reason: str) -> bytes:
    return json.dumps({"error": {"code": code, "reason": reason}}).encode()
