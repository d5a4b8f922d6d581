"""The byte encoding that every digest of ours is taken over (records.md, "Bytes that are hashed").

value = its length as unsigned 64-bit big-endian, then its bytes. field = its name as a value, its content as
a value. digest = SHA-256 over the domain as a value, then the fields in order. Nothing here may be varied:
other people's programs check it.
"""

import hashlib
import math
import struct
from collections.abc import Iterable
from functools import cache

Content = str | bytes | int | bool

_QUIET_NAN = b"\x7f\xf8\x00\x00\x00\x00\x00\x00"


class Digest:
    """Collects fields in order under one domain."""

    def __init__(self, domain: str) -> None:
        """Start a digest under `domain`."""
        self._hash = hashlib.sha256()
        self._value(domain.encode())

    def field(self, name: str, content: Content) -> "Digest":
        """Append one field: strings as UTF-8, booleans as true/false, integers in decimal, bytes as they are."""
        data = content_bytes(content)
        self._hash.update(_value_of_name(name) + len(data).to_bytes(8, "big"))
        self._hash.update(data)
        return self

    def hexdigest(self) -> str:
        """Lowercase hex of the digest so far."""
        return self._hash.hexdigest()

    def _value(self, data: bytes) -> None:
        self._hash.update(len(data).to_bytes(8, "big"))
        self._hash.update(data)


@cache
def _value_of_name(name: str) -> bytes:
    """A field's name as a value; all names are our own constants."""
    data = name.encode()
    return len(data).to_bytes(8, "big") + data


def content_bytes(content: Content) -> bytes:
    """A field's content as the bytes that are hashed."""
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bool):
        return b"true" if content else b"false"
    return str(content).encode("ascii")


def float_bytes(values: Iterable[float]) -> bytes:
    """IEEE 754 binary64 big-endian, concatenated; every NaN is the quiet NaN without sign or payload."""
    return b"".join(_QUIET_NAN if math.isnan(value) else struct.pack(">d", value) for value in values)
