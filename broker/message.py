"""A guest's call as one JSON message, read strictly, and the answer as one JSON message.

The call: `{"method", "path", "query"?, "headers"?, "body"?, "body_encoding"?}`. `query` maps a key to a string or to a list
of strings, `headers` a name to a string; `body` is text, or base64 if `body_encoding` says so. Nothing in an answer
repeats a byte of the call.

All runs' messages are read in one process, one after the other. So a message of more parts than a call has is refused before it
is parsed: the longest message costs little more than to look at each of its bytes once.
"""

import base64
import binascii
import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll.contract.grants import ANSWER_BYTES, MESSAGE_BYTES, OUT_BYTES, CallCode

QUERY_VALUES: Final = 64
_MEMBERS: Final = {"method", "path", "query", "headers", "body", "body_encoding"}
_PARTS: Final = 512
"""More than strings, commas and brackets of the largest call that can be allowed."""
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_SIGNS: Final = (b",", b"[", b"{")

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Call:
    """What a guest asks for, as sent. Nothing of it is fit for logs."""

    method: str = field(repr=False)
    path: str = field(repr=False)
    query: Pairs = field(default=(), repr=False)
    headers: Pairs = field(default=(), repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """A call without an answer of the API. `reason` is a sentence of ours; `retry_after_s` only where waiting helps."""

    code: CallCode
    reason: str
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer of the API, whole."""

    status: int
    headers: Pairs = field(repr=False)
    body: bytes = field(repr=False)


class _Malformed(Exception):
    """Carries one phrase of ours out of the reading functions."""


def read_call(message: bytes, out_bytes: int = OUT_BYTES) -> Call | Failed:
    """The call that `message` means, or why it means none."""
    if len(message) > MESSAGE_BYTES:
        return Failed(CallCode.TOO_LARGE, f"the message is over {MESSAGE_BYTES} bytes")
    try:
        call = _call(_parse(message))
    except _Malformed as broken:
        return Failed(CallCode.DENIED, f"the message {broken}")
    if call.body is not None and len(call.body) > out_bytes:
        return Failed(CallCode.TOO_LARGE, f"the body is over {out_bytes} bytes")
    return call


def write_answer(answer: Answered | Failed) -> bytes:
    """The answer as it travels to the guest."""
    if isinstance(answer, Failed):
        return _written({"error": _error(answer)})
    try:
        message = _answered(answer, answer.body.decode(), "utf-8")
    except UnicodeDecodeError:
        message = b""
    # Of control characters JSON makes six each, and a text of these is none to anybody.
    if not message or len(message) > ANSWER_BYTES:
        message = _answered(answer, base64.b64encode(answer.body).decode(), "base64")
    return message


def _answered(answer: Answered, body: str, encoding: str) -> bytes:
    shape = {"status": answer.status, "headers": dict(answer.headers), "body": body}
    return _written(shape | {"body_encoding": encoding})


def _error(failed: Failed) -> dict[str, Any]:
    error: dict[str, Any] = {"code": failed.code.value, "reason": failed.reason}
    return error if failed.retry_after_s is None else error | {"retry_after_s": failed.retry_after_s}


def _written(shape: dict[str, Any]) -> bytes:
    return json.dumps(shape, ensure_ascii=True, separators=(",", ":")).encode()


def _parse(message: bytes) -> dict[str, Any]:
    if not _is_small(message):
        raise _Malformed("must have no more parts than a call has")
    try:
        value = json.loads(message.decode(), object_pairs_hook=_object)
    except (ValueError, RecursionError):
        # No detail: the parser's words could repeat what was sent.
        raise _Malformed("must be JSON in UTF-8") from None
    if not isinstance(value, dict) or not value.keys() <= _MEMBERS:
        raise _Malformed(
            "must be one object with method, path, query, headers, body, body_encoding and nothing else"
        )
    return value


def _is_small(message: bytes) -> bool:
    """Whether it has so few parts that parsing costs nothing beside its bytes. What is inside of strings does not count."""
    parts = end = 0
    for string in _STRING.finditer(message):
        parts += 1 + _signs(message, end, string.start())
        end = string.end()
        if parts > _PARTS:
            return False
    return parts + _signs(message, end, len(message)) <= _PARTS


def _signs(message: bytes, start: int, end: int) -> int:
    return sum(message.count(sign, start, end) for sign in _SIGNS)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) != len(pairs):
        raise _Malformed("must hold no key twice in one object")
    return built


def _call(value: dict[str, Any]) -> Call:
    return Call(
        method=_text(value.get("method"), "method"),
        path=_text(value.get("path"), "path"),
        query=_query(value.get("query", {})),
        headers=_headers(value.get("headers", {})),
        body=_body(value),
    )


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise _Malformed(f"must have a string as {name}")
    return value


def _query(value: object) -> Pairs:
    if not isinstance(value, dict):
        raise _Malformed("must have an object as query")
    return tuple(
        (key, _text(part, "a query value")) for key, found in value.items() for part in _parts(found)
    )


def _parts(found: object) -> list[Any]:
    return found if isinstance(found, list) else [found]


def _headers(value: object) -> Pairs:
    if not isinstance(value, dict):
        raise _Malformed("must have an object as headers")
    return tuple((name, _text(found, "a header's value")) for name, found in value.items())


def _body(value: dict[str, Any]) -> bytes | None:
    encoding = value.get("body_encoding", "utf-8")
    known = isinstance(encoding, str) and encoding in {"utf-8", "base64"}
    if not known or ("body_encoding" in value and "body" not in value):
        raise _Malformed("must have utf-8 or base64 as body_encoding, beside a body")
    if "body" not in value:
        return None
    body = _text(value["body"], "body")
    try:
        return body.encode() if encoding == "utf-8" else base64.b64decode(body.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise _Malformed("must have a body that is what its encoding says") from None
