"""Writing what strangers wrote: exact bytes to a pipe, nothing that could command a terminal to a terminal."""

import codecs
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_KEPT = frozenset("\n\t\u200c\u200d")
"""Line end, tab, and the two joiners that ordinary text and emoji need."""
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories that move the cursor, change the direction of text, or show as nothing."""

_ERASE = "\r\x1b[K"


def escaped(text: str) -> str:
    """`text` with control, direction and unassigned characters shown as escapes."""
    return "".join(_shown(char) for char in text)


def _shown(char: str) -> str:
    if char in _KEPT or unicodedata.category(char) not in _ESCAPED:
        return char
    return char.encode("ascii", "backslashreplace").decode() if ord(char) > 0x7F else f"\\x{ord(char):02x}"  # noqa: PLR2004


class GuestWriter:
    """Writes a guest's bytes as they come: as they are to a pipe or with `raw`, escaped to a terminal."""

    def __init__(self, stream: TextIO, *, raw: bool) -> None:
        self._stream = stream
        self._exact = raw or not stream.isatty()
        # Keeps a character that is split between two pieces; what is no UTF-8 is shown as escapes.
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._in_line = False

    def write(self, data: bytes) -> None:
        """The next bytes."""
        self._stream.flush()
        if self._exact:
            self._stream.buffer.write(data)
            self._stream.buffer.flush()
        else:
            self._show(self._decoder.decode(data))

    def close(self) -> None:
        """The last line ends, on a terminal."""
        if not self._exact:
            self._show(self._decoder.decode(b"", final=True))
            self._show("\n" if self._in_line else "")

    def _show(self, text: str) -> None:
        self._stream.write(escaped(text))
        self._stream.flush()
        self._in_line = not text.endswith("\n") if text else self._in_line


def write_guest(stream: TextIO, data: bytes, *, raw: bool) -> None:
    """All of a guest's bytes at once."""
    writer = GuestWriter(stream, raw=raw)
    writer.write(data)
    writer.close()


class Line:
    """One line that says what goes on, and can be taken away; nothing where `stream` is no terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._shown = False

    def show(self, text: str) -> None:
        """In the place of what it said before."""
        self.hide()
        if self._terminal:
            self._stream.write(escaped(text))
            self._stream.flush()
            self._shown = True

    def hide(self) -> None:
        """Take it away."""
        if self._shown:
            self._stream.write(_ERASE)
            self._stream.flush()
            self._shown = False


@contextmanager
def progress(stream: TextIO, text: str) -> Iterator[None]:
    """Show one line while something goes on, and take it away again."""
    line = Line(stream)
    line.show(text)
    try:
        yield
    finally:
        line.hide()
