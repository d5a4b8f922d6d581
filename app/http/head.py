"""The header of a request as raw bytes, judged before any parser sees it. Pure.

The parser behind us is lenient where a gateway in front of us may not be: it joins folded lines, ends lines at a bare LF and
takes one of two equal Content-Lengths. Whatever two readers could frame differently is refused here.
"""

import re

from app.http.answers import too_large
from app.http.limits import ListenerLimits
from plimsoll.contract.refusals import Code, Reason, Refusal

_ENDS = (b"\n\r\n", b"\n\n")
_REQUEST_LINE = re.compile(rb"[A-Z]{1,16} (/[!-~]*) HTTP/1\.([01])")
_PATH = re.compile(rb"[A-Z]{1,16} (/[!->@-~]*)")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_FRAMING = {b"content-length", b"transfer-encoding", b"content-encoding"}


def end_of_head(data: bytes, start: int = 0) -> int | None:
    """Index just behind the blank line, searched from `start`; None while it has not come."""
    ends = [at + len(mark) for mark in _ENDS if (at := data.find(mark, start)) >= 0]
    return min(ends, default=None)


def path_of(head: bytes) -> str:
    """The path as routes see it, also in a header that is refused or has only begun; empty when there is none to read."""
    found = _PATH.match(head)
    return found[1].decode("ascii") if found else ""


def too_long(limits: ListenerLimits) -> Refusal:
    """The header is over its limits."""
    detail = f"The header must be at most {limits.head_fields} fields and {limits.head_bytes} bytes"
    return Refusal(Code.HEADERS_TOO_LARGE, detail, Reason.REQUEST)


def inspect_head(head: bytes, limits: ListenerLimits) -> Refusal | None:
    """What is wrong with a complete header, the blank line included."""
    line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if len(head) > limits.head_bytes or len(fields) > limits.head_fields:
        return too_long(limits)
    if not head.endswith(b"\r\n\r\n") or any(b"\n" in field or b"\r" in field for field in fields):
        return _malformed("Header lines must end with CR LF")
    if (version := _REQUEST_LINE.fullmatch(line)) is None:
        return _malformed("The request line must be METHOD /path HTTP/1.1")
    if b"%" in version[1].partition(b"?")[0]:
        # One spelling for each path: what a gateway forbids by its path must not be reached by another one.
        return _malformed("The path must hold no %; none here needs one")
    if any(field[:1] in {b" ", b"\t", b""} for field in fields):
        return _malformed("Header lines must not be folded or empty")
    return _framing(_framing_fields(fields), old=version[2] == b"0", limits=limits)


def _framing_fields(fields: list[bytes]) -> list[tuple[bytes, bytes]]:
    pairs = (field.partition(b":") for field in fields)
    lowered = ((name.strip().lower(), value.strip(b" \t")) for name, _, value in pairs)
    return [(name, value) for name, value in lowered if name in _FRAMING]


def _framing(fields: list[tuple[bytes, bytes]], *, old: bool, limits: ListenerLimits) -> Refusal | None:
    """What is wrong with how the body says it ends, and with its size as far as it is said."""
    values = dict(fields)
    if b"content-encoding" in values:
        detail = "Encoded bodies are refused: send no Content-Encoding"
        return Refusal(Code.UNSUPPORTED_MEDIA_TYPE, detail, Reason.REQUEST)
    if len(fields) > 1:
        return _malformed("Content-Length or Transfer-Encoding must be sent once, and not both")
    if b"transfer-encoding" in values and (old or values[b"transfer-encoding"].lower() != b"chunked"):
        return _malformed("Transfer-Encoding must be chunked, and HTTP/1.1")
    length = values.get(b"content-length", b"0")
    if _LENGTH.fullmatch(length) is None:
        return _malformed("Content-Length must be a decimal number")
    return too_large(limits.body_bytes) if int(length) > limits.body_bytes else None


def _malformed(detail: str) -> Refusal:
    return Refusal(Code.INVALID_HEADER, detail, Reason.REQUEST)
