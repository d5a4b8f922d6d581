"""What a program prints leaves line by line, as on a terminal: whoever is ended from outside can write nothing more.

Every Python of the sandbox loads this at its start (`plimsoll.pth`), since it would gather what goes into a pipe; so it imports
nothing that takes time. A line costs a system call, 30 microseconds under an old gVisor: after many, a thread sends on what
there is, ten times a second. After as much as a run keeps of a stream it is over, and output is gathered as ever.
"""

import _signal  # type: ignore[import-not-found]  # the module above it takes ten times as long
import _thread
import atexit
import io
import os
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LINES = 2_048
"""Sent one by one."""
KEPT = 65_536
"""Bytes: no run keeps more of a stream."""
EVERY_S = 0.1


class Lines:
    """One stream's way out. It stands in for `write` of the stream's buffer, which the stream looks up each time."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text
        self._buffer: Any = text.buffer
        self._write: Any = self._buffer.write
        self._lines = LINES
        self._bytes = KEPT

    def begin(self) -> None:
        self._buffer.write = self._one_by_one
        self._be(line_buffering=True, write_through=False)

    def _be(self, *, line_buffering: bool, write_through: bool) -> None:
        with suppress(ValueError):  # the program has taken the buffer out of it, or closed it
            self._text.reconfigure(line_buffering=line_buffering, write_through=write_through)

    def _one_by_one(self, data: bytes, /) -> int:
        size = self._counted(data)
        self._buffer.flush()
        self._lines -= 1
        if self._bytes > 0 and self._lines <= 0 and vars(self._buffer).get("write") == self._one_by_one:
            # From here on the text is handed over at once, and only the buffer is flushed: it can bear two threads.
            self._buffer.write = self._counted
            if self._is_flushed_now_and_then():
                self._be(line_buffering=False, write_through=True)
            else:
                self._lines, self._buffer.write = LINES, self._one_by_one
        return size

    def _counted(self, data: bytes, /) -> int:
        size: int = self._write(data)
        self._bytes -= size
        if self._bytes <= 0:
            self._end()
        return size

    def _end(self) -> None:
        if vars(self._buffer).pop("write", None):
            self._be(line_buffering=False, write_through=False)

    def _is_flushed_now_and_then(self) -> bool:
        """Begin with it, unless there can be no more threads."""
        # No signal is for that thread: a program may wait for its own.
        before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
        flushing = _thread.allocate_lock()
        try:
            _thread.start_new_thread(self._flush_now_and_then, (flushing,))
        except RuntimeError:
            return False
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, before)

        def end() -> None:
            """An interpreter that ends may not find a stream in use by a thread."""
            self._bytes = 0
            with flushing:
                pass

        atexit.register(end)
        os.register_at_fork(after_in_child=self._in_child)
        return True

    def _flush_now_and_then(self, flushing: "_thread.LockType") -> None:
        while self._bytes > 0:
            time.sleep(EVERY_S)
            with flushing:
                if self._bytes > 0:
                    try:
                        self._buffer.flush()
                    except Exception:  # noqa: BLE001  # closed, or nobody reads: the program's next write says so
                        return

    def _in_child(self) -> None:
        """A forked child has no such thread."""
        if self._bytes > 0:
            self._lines = LINES
            self.begin()


def main() -> None:
    """For the standard output, unless its buffering was chosen."""
    text = sys.stdout
    if (
        isinstance(text, io.TextIOWrapper)
        and isinstance(text.buffer, io.BufferedWriter)
        and not text.line_buffering
        and not text.write_through
    ):
        Lines(text).begin()
