"""Looks for the credential in an answer, before the guest gets any of it.

A net, not a wall: it finds the whole credential as it is, JSON-escaped, percent-encoded or in base64 (either alphabet, at any
of the three alignments, with line breaks), also where only some characters are escaped. An API that wants to give it away
otherwise can. A part of the credential is never reacted to: then answers would tell which parts are right.
"""

import asyncio
import base64
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from typing import Final

from plimsoll.contract.profiles import SHORTEST

_BESIDE_FROM: Final = 64 << 10
"""Longer texts are searched beside the event loop."""
_JSON_RUN: Final = re.compile(rb"(?:\\u00[0-9a-fA-F]{2})+")
_URL_RUN: Final = re.compile(rb"(?:%[0-9a-fA-F]{2})+")
_JSON_SHORT: Final = ((rb"\/", b"/"), (rb"\"", b'"'), (rb"\\", b"\\"))


class Net:
    """What one run's answers are searched for. Shows nothing of it."""

    __slots__ = ("_cores", "_secrets")

    def __init__(self, secrets: Iterable[bytes]) -> None:
        """Look for each of `secrets` whole. Raises ValueError for one that is too short to look for."""
        self._secrets = tuple(secrets)
        if any(len(secret) < SHORTEST for secret in self._secrets):
            raise ValueError(f"a credential must have at least {SHORTEST} characters")
        self._cores = frozenset(core for secret in self._secrets for core in _base64_cores(secret))

    def catches(self, text: bytes) -> bool:
        """Whether a credential is in `text`, in any of the forms."""
        return any(self._in(view) for view in _views(text))

    def _in(self, view: bytes) -> bool:
        if any(secret in view for secret in self._secrets):
            return True
        joined = _without_breaks(view)
        return any(core in joined for core in self._cores)


class Search:
    """One run's net, for texts of any length: long ones go to `beside`, one after the other.

    So an API's many answers that take long to search are not all before one of another run's.
    """

    def __init__(self, net: Net, beside: Executor | None) -> None:
        """Without `beside`, the event loop's own threads are taken."""
        self._net, self._beside = net, beside
        self._turn = asyncio.Lock()

    async def catches(self, text: bytes) -> bool:
        """Whether a credential is in `text`."""
        if len(text) <= _BESIDE_FROM:
            return self._net.catches(text)
        async with self._turn:
            return await asyncio.get_running_loop().run_in_executor(self._beside, self._net.catches, text)


def _views(text: bytes) -> Iterator[bytes]:
    """The text, and what it is to a reader of JSON, of URLs, and of URLs in JSON."""
    yield text
    unescaped = _from_json(text) if b"\\" in text else text
    if b"\\" in text:
        yield unescaped
    if b"%" in text:
        yield _from_url(text)
    if b"\\" in text and b"%" in unescaped:
        yield _from_url(unescaped)


def _from_json(text: bytes) -> bytes:
    unescaped = _JSON_RUN.sub(lambda run: bytes.fromhex(run[0].replace(rb"\u00", b"").decode()), text)
    for escape, character in _JSON_SHORT:
        unescaped = unescaped.replace(escape, character)
    return unescaped


def _from_url(text: bytes) -> bytes:
    return _URL_RUN.sub(lambda run: bytes.fromhex(run[0].replace(b"%", b"").decode()), text)


def _without_breaks(text: bytes) -> bytes:
    """Base64 may come in lines; in JSON their ends are escaped."""
    joined = text.translate(None, b"\r\n")
    return joined.replace(rb"\r", b"").replace(rb"\n", b"") if b"\\" in joined else joined


def _base64_cores(secret: bytes) -> set[bytes]:
    """What of the secret's base64 is the same whatever stands before and behind it, for each alignment."""
    cores = set()
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + secret)
        core = encoded[-(-before * 8 // 6) : (before + len(secret)) * 8 // 6]
        cores |= {core, core.translate(bytes.maketrans(b"+/", b"-_"))}
    return cores
