"""Frames over the host's end of the socketpair.

The other end is the API, which is trusted: a broken frame is a bug and ends the process; the API alone decides how much is
under way, so what waits to be sent is bounded by the runs' output caps.

Each send wakes the API, which costs it more than the frame. So what nobody waits for is held for a moment: it leaves with the
next frame that cannot wait.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Any

from plimsoll.contract import frames

_CHUNK = 64 * 1024
_SETTINGS_BYTES = 64 * 1024
_SETTINGS_S = 10.0
HOLD_S = 0.002
"""How long a frame may be held: most runs are over by then, so that their end goes along."""


def read_settings(sock: socket.socket) -> dict[str, Any]:
    """The first frame, read to its last byte and no further, within ten seconds. Raises OSError or FrameError."""
    sock.settimeout(_SETTINGS_S)
    length = _exactly(sock, 4)
    total = int.from_bytes(length)
    if total > _SETTINGS_BYTES:
        raise frames.FrameError("settings out of bounds")
    ((header, _),) = frames.Decoder(_SETTINGS_BYTES).feed(length + _exactly(sock, total))
    settings = header.get("settings")
    if header.get("op") != "settings" or not isinstance(settings, dict):
        raise frames.FrameError("the first frame is not the settings")
    return settings


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise ConnectionResetError
        data += piece
    return data


class Wire:
    """Owns the socket. `gone` is set at end of file or when the peer broke the framing."""

    def __init__(self, sock: socket.socket, on_frame: Callable[[dict[str, Any], bytes], None]) -> None:
        """Start reading in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._on_frame = on_frame
        self._decoder = frames.Decoder()
        self._waiting = bytearray()
        self._blocked = False
        """Whether the kernel takes no more for now."""
        self._held: asyncio.TimerHandle | None = None
        self.gone = asyncio.Event()
        sock.settimeout(0)
        self._loop.add_reader(sock, self._readable)

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Send or queue one frame; after the end it is dropped."""
        if self.gone.is_set():
            return
        self._waiting += frames.encode(header, body)
        self._release()

    def hold(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """The same, with the next frame that is sent or after `HOLD_S`."""
        if self.gone.is_set():
            return
        self._waiting += frames.encode(header, body)
        if self._held is None:
            self._held = self._loop.call_later(HOLD_S, self._release)

    def _release(self) -> None:
        if self._held is not None:
            self._held.cancel()
            self._held = None
        if not self._blocked and not self._flush():
            self._blocked = True
            self._loop.add_writer(self._sock, self._writable)

    def close(self) -> None:
        """Stop reading and writing, and close the socket."""
        self.gone.set()
        if self._held is not None:
            self._held.cancel()
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()

    def _flush(self) -> bool:
        """Hand over what the kernel takes; whether nothing waits any more."""
        try:
            sent = self._sock.send(self._waiting)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self.gone.set()
            return True
        del self._waiting[:sent]
        return not self._waiting

    def _writable(self) -> None:
        if self._flush():
            self._blocked = False
            self._loop.remove_writer(self._sock)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        try:
            if data:
                for header, body in self._decoder.feed(data):
                    self._on_frame(header, body)
                return
        except (frames.FrameError, ValueError, KeyError, TypeError):
            pass
        self._loop.remove_reader(self._sock)
        self.gone.set()
