"""Frames over one non-blocking socket, for the link. Counts the bytes it hands over, so the link can prove what never left."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from plimsoll.contract import frames

_CHUNK = 64 * 1024
MAX_QUEUED = 64 * 1024 * 1024
"""Most bytes that wait for a process that does not read."""


class ChannelFull(Exception):
    """Too much waits already; not a byte of this frame was queued."""


class Channel:
    """Owns the socket until `close`, end of file or a broken frame; then calls `on_lost` once."""

    def __init__(
        self,
        sock: socket.socket,
        on_frame: Callable[[dict[str, Any], bytes], None],
        on_lost: Callable[[], None],
    ) -> None:
        """Start reading at once, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._decoder = frames.Decoder()
        self._waiting = bytearray()
        self._handed = 0
        self._closed = False
        sock.settimeout(0)
        self._loop.add_reader(sock, self._readable)

    @property
    def queued(self) -> int:
        """Position in the stream at which the next frame's first byte will stand."""
        return self._handed + len(self._waiting)

    def has_left(self, position: int) -> bool:
        """Whether the byte at `position` was handed to the kernel."""
        return self._handed > position

    def send(self, frame: bytes) -> None:
        """Hand over or queue one frame. Raises ChannelFull. A dead peer is noticed by `on_lost`, later."""
        if len(self._waiting) + len(frame) > MAX_QUEUED:
            raise ChannelFull
        idle = not self._waiting
        self._waiting += frame
        if idle and not self._flush():
            self._loop.add_writer(self._sock, self._writable)

    def close(self) -> None:
        """Close the socket and say so. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        self._on_lost()

    def _flush(self) -> bool:
        """Hand over what the kernel takes; whether nothing waits any more."""
        try:
            sent = self._sock.send(self._waiting)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            # The reader sees the end of file. Closing here would call back into whoever is sending.
            self._loop.call_soon(self.close)
            return True
        self._handed += sent
        del self._waiting[:sent]
        return not self._waiting

    def _writable(self) -> None:
        if self._flush():
            self._loop.remove_writer(self._sock)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        try:
            for header, body in self._decoder.feed(data):
                self._on_frame(header, body)
        except (frames.FrameError, ValueError, KeyError, TypeError):
            self.close()
