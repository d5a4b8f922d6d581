"""What a program calls as `import host`: the twin in Python of host.js, with the same behaviour and the same failures.

    r = host.get("/v1/employees")      # r.status, r.headers, r.body, r.json()

`get`, `put`, `post`, `patch`, `delete` (also `del_`) and `call(method, path)`. A call that fails raises HostError, whose `code`
says why. Each call is one connection, so programs may fork and use threads as they like.
"""

import base64
import json
import re
import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

CHANNEL = "/dev/shm/plimsoll-calls"  # noqa: S108  # the agent's own file, which guests can neither remove nor replace
MESSAGE_BYTES = 2 << 20

_LENGTH = struct.Struct(">I")
_MALFORMED = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class HostError(Exception):
    """A call that failed. `code` is for programs, `reason` for people; `retry_after` says in how many seconds to try again."""

    def __init__(self, code: str, reason: str, retry_after: "int | None" = None) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason
        self.retry_after = retry_after


class HostResponse:
    """An answer of the API. `body` is text, or bytes if it is none."""

    def __init__(self, status: int, headers: "dict[str, str]", body: "str | bytes") -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def json(self) -> Any:
        """The body as JSON. Raises ValueError if it is none."""
        if not isinstance(self.body, str):
            raise ValueError("the body is not text")  # noqa: TRY004  # as for any other body that is not JSON
        return json.loads(self.body)


def call(method: str, path: str, *, query: Any = None, headers: Any = None, body: Any = None) -> HostResponse:
    """One call. Raises HostError if it fails, TypeError if it cannot be meant."""
    return _read(_send(json.dumps(_message(method, path, query, headers, body)).encode()))


def get(path: str, *, query: Any = None, headers: Any = None) -> HostResponse:
    return call("GET", path, query=query, headers=headers)


def put(path: str, body: Any = None, *, query: Any = None, headers: Any = None) -> HostResponse:
    return call("PUT", path, query=query, headers=headers, body=body)


def post(path: str, body: Any = None, *, query: Any = None, headers: Any = None) -> HostResponse:
    return call("POST", path, query=query, headers=headers, body=body)


def patch(path: str, body: Any = None, *, query: Any = None, headers: Any = None) -> HostResponse:
    return call("PATCH", path, query=query, headers=headers, body=body)


def delete(path: str, *, query: Any = None, headers: Any = None) -> HostResponse:
    return call("DELETE", path, query=query, headers=headers)


del_ = delete
globals()["del"] = delete  # for getattr: the language has no other way to say it


# --- the message ----------------------------------------------------------------------------------------------------------


def _message(method: Any, path: Any, query: Any, headers: Any, body: Any) -> "dict[str, Any]":
    if not isinstance(method, str) or not isinstance(path, str):
        raise TypeError("method and path are text")
    place, _, search = path.partition("?")
    pairs = [*_pairs_in(search), *_pairs_of(query)]
    message: dict[str, Any] = {"method": method.upper(), "path": place, "headers": _headers(headers)}
    if pairs:
        message["query"] = _query(pairs)
    if body is not None:
        _add_body(message, body)
    return message


def _pairs_in(text: str) -> "Iterator[tuple[str, str]]":
    for part in text.split("&"):
        if part:
            key, _, value = part.partition("=")
            yield _decoded(key), _decoded(value)


def _decoded(text: str) -> str:
    try:
        encoded = text.replace("+", " ").encode()
        if not _MALFORMED.search(encoded):
            return unquote_to_bytes(encoded).decode()
    except UnicodeError:
        pass
    raise TypeError("the query is not well-formed")


def _pairs_of(query: Any) -> "Iterator[tuple[str, str]]":
    for key, value in _items(query, "query"):
        for each in value if isinstance(value, (list, tuple)) else [value]:
            yield key, _scalar(each)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise TypeError("a query value is text, a number, a boolean, or a list of these")
    return f"{value}"


def _query(pairs: "list[tuple[str, str]]") -> "dict[str, str | list[str]]":
    query: dict[str, list[str]] = {}
    for key, value in pairs:
        query.setdefault(key, []).append(value)
    return {key: values if len(values) > 1 else values[0] for key, values in query.items()}


def _headers(headers: Any) -> "dict[str, str]":
    found = dict(_items(headers, "headers"))
    if not all(isinstance(value, str) for value in found.values()):
        raise TypeError("a header value is text")
    return found


def _items(value: Any, name: str) -> Any:
    if value is None:
        return ()
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise TypeError(f"{name} is a dict with text as keys")
    return value.items()


def _add_body(message: "dict[str, Any]", body: Any) -> None:
    if isinstance(body, (bytes, bytearray, memoryview)):
        message["body"], message["body_encoding"] = base64.b64encode(body).decode(), "base64"
        kind = "application/octet-stream"
    elif isinstance(body, str):
        message["body"], kind = body, "text/plain; charset=utf-8"
    else:
        message["body"], kind = _json(body), "application/json"
    if not any(name.lower() == "content-type" for name in message["headers"]):
        message["headers"]["content-type"] = kind


def _json(body: Any) -> str:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        raise TypeError("the body is not JSON") from None


# --- the channel ----------------------------------------------------------------------------------------------------------


def _send(message: bytes) -> "bytes | None":
    """The answer's bytes; None where the run has no grant."""
    if len(message) > MESSAGE_BYTES:
        raise HostError("too_large", "the message is too long")
    with socket.socket(socket.AF_UNIX) as channel:
        try:
            channel.connect(CHANNEL)
            channel.sendall(_LENGTH.pack(len(message)) + message)
            (length,) = _LENGTH.unpack(_exactly(channel, _LENGTH.size))
            return _exactly(channel, length)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except OSError:
            raise HostError("upstream", "the call was cut off") from None


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = channel.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionResetError
        data += part
    return bytes(data)


def _read(answer: "bytes | None") -> HostResponse:
    if answer is None:
        raise HostError("no_grant", "this run has no grant")
    try:
        said = json.loads(answer)
    except (ValueError, RecursionError):
        raise HostError("upstream", "the answer cannot be read") from None
    if "error" in said:
        error = said["error"]
        raise HostError(error["code"], error["reason"], error.get("retry_after_s"))
    body = said["body"]
    return HostResponse(
        said["status"], said["headers"], base64.b64decode(body) if said["body_encoding"] == "base64" else body
    )
