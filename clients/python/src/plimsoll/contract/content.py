"""Bytes inside JSON: as text where they are text, as base64 otherwise; nothing is repaired, both ways give the same bytes.

A whole file is text only if JSON can hold it without growing by half (and `SLACK_BYTES`): eight MiB of control characters would
take 48 as text, and clients take no answer over 32.
"""

import base64
from typing import Literal

Encoding = Literal["utf-8", "base64"]

SLACK_BYTES = 1024
_TWICE = b'"\\\b\t\n\f\r'
"""What JSON writes as two characters; other control characters take six."""
_SIXFOLD = bytes(set(range(0x20)) - set(_TWICE))


def stream_text(data: bytes) -> tuple[str, Encoding]:
    """Output as (text, encoding): its own characters when it is UTF-8, base64 otherwise."""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def file_text(data: bytes) -> tuple[str, Encoding]:
    """A file as (text, encoding): as `stream_text`, but base64 also where JSON would make the text much longer."""
    if escaped_size(data) > longest(len(data)) + SLACK_BYTES:
        return base64.b64encode(data).decode(), "base64"
    return stream_text(data)


def escaped_size(data: bytes) -> int:
    """Bytes of `data` as a JSON string in UTF-8, without its quotes."""
    twice = len(data) - len(data.translate(None, _TWICE))
    sixfold = len(data) - len(data.translate(None, _SIXFOLD))
    return len(data) + twice + 5 * sixfold


def longest(size: int) -> int:
    """Bytes of JSON that files of `size` bytes in all take at most, beside the slack for each."""
    return size + size // 2
