"""Writing what strangers wrote: exact bytes to a pipe, nothing that could command a terminal to a terminal."""

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


def write_guest(stream: TextIO, data: bytes, *, raw: bool) -> None:
    """The guest's bytes: as they are to a pipe or with `raw`, escaped to a terminal."""
    stream.flush()
    if raw or not stream.isatty():
        stream.buffer.write(data)
        stream.buffer.flush()
        return
    text = escaped(data.decode(errors="backslashreplace"))
    stream.write(text if not text or text.endswith("\n") else f"{text}\n")
    stream.flush()


@contextmanager
def progress(stream: TextIO, text: str) -> Iterator[None]:
    """Show one line while something goes on, and take it away again; nothing where `stream` is no terminal."""
    shown = stream.isatty()
    if shown:
        stream.write(escaped(text))
        stream.flush()
    try:
        yield
    finally:
        if shown:
            stream.write(_ERASE)
            stream.flush()
