"""What both shells share: the request as httpx2 wants it, the head of an answer, and the transport's errors as ours."""

import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx2

from plimsoll.client.answers import BODY_LIMIT, Head, too_large
from plimsoll.client.core import Prepared
from plimsoll.client.errors import PlimsollError, RequestTimeout, TransportError
from plimsoll.client.options import Options, PrivateSocket
from plimsoll.client.progress import Progress
from plimsoll.client.transport import CONNECT_S, ClosedClient
from plimsoll.contract.refusals import Reason

FAILURES = (httpx2.TransportError, httpx2.StreamError, OSError)
"""What a transport may raise while it works."""


def unix_ms() -> int:
    """Our own clock, Unix milliseconds."""
    return time.time_ns() // 1_000_000


def http_request(prepared: Prepared[Any], options: Options, trace: Callable[..., Any]) -> httpx2.Request:
    """The exact request: our headers, and no other than Host and Content-Length."""
    deadline = options.deadline_s
    timeouts = {"connect": min(CONNECT_S, deadline), "read": deadline, "write": deadline, "pool": deadline}
    return httpx2.Request(
        prepared.method,
        options.origin + prepared.path,
        headers=list(prepared.headers),
        content=prepared.body or None,
        extensions={"timeout": timeouts, "trace": trace},
    )


def head_of(response: httpx2.Response) -> Head:
    """Status and headers as text; bytes beyond ASCII keep their number."""
    pairs = (
        (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in response.headers.raw
    )
    return Head(response.status_code, tuple(pairs))


class Collected:
    """The body so far; refuses to grow over the limit."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, part: bytes) -> None:
        """Raises ResponseTooLarge (check 19, by count)."""
        self._size += len(part)
        if self._size > BODY_LIMIT:
            raise too_large()
        self._parts.append(part)

    def body(self) -> bytes:
        return b"".join(self._parts)


def failure(
    error: BaseException, progress: Progress, prepared: Prepared[Any], options: Options
) -> PlimsollError:
    """The error for a failed transport (checks 15, 16 and 17): where it failed and why, in no words of the transport."""
    closed = isinstance(error, ClosedClient)
    proof = Reason.ENVIRONMENT if closed else progress.mark(Reason.ENVIRONMENT)
    timed_out = isinstance(error, TimeoutError | httpx2.TimeoutException)
    if _has_ended(error, options):
        what = "this private service has ended"
    elif closed:
        what = "this client is closed"
    elif timed_out and proof is None:
        what = f"the service at {_place(options)} did not answer in time"
    else:
        verb = "gave no answer" if proof is None else "could not be reached"
        what = f"the service at {_place(options)} {verb} ({_cause(error, options)})"
    message = f"{what}: {'nothing was sent' if proof else 'the request may have arrived'}"
    kind = RequestTimeout if timed_out and proof is None else TransportError
    return kind(message, not_dispatched=proof if prepared.starts else None, request_id=prepared.request_id)


def _has_ended(error: BaseException, options: Options) -> bool:
    path = options.unix_socket
    if not isinstance(path, PrivateSocket):
        return False
    refused = any(isinstance(each, ConnectionRefusedError) for each in _chain(error))
    return refused or not os.path.lexists(path)


def _place(options: Options) -> str:
    """The socket's path, or HOST:PORT. A checked base URL holds no user, and no path is named here."""
    if options.unix_socket is not None:
        return options.unix_socket
    url = urlsplit(options.origin)
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    return f"{host}:{url.port or (443 if url.scheme == 'https' else 80)}"


_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (ssl.SSLCertVerificationError, "its certificate is not accepted"),
    (ssl.SSLError, "TLS failed: is it http?"),
    (socket.gaierror, "name not found"),
    (ConnectionRefusedError, "refused"),
    (FileNotFoundError, "no such socket"),
    (PermissionError, "permission denied"),
    (TimeoutError, "timed out"),
    (httpx2.TimeoutException, "timed out"),
    (ConnectionError, "connection closed"),
    (httpx2.RemoteProtocolError, "no HTTP, or cut off"),
)
"""The first row with an error of the chain says why."""


def _cause(error: BaseException, options: Options) -> str:
    chain = list(_chain(error))
    for kind, word in _CAUSES:
        if any(isinstance(each, kind) for each in chain):
            return word
    # A handshake that the other side ends is, with asyncio, no error of its own kind.
    handshake = isinstance(error, httpx2.ConnectError) and options.origin.startswith("https:")
    return "TLS failed: is it http?" if handshake and len(chain) > 1 else type(error).__name__


_TRANSPORT = ("httpx2", "httpcore2")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, and a group's members; not what its caller was handling besides."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _chain(each)
    # The pool raises its own errors "from None", which leaves where they came from in the context alone.
    ours = type(error).__module__.partition(".")[0] in _TRANSPORT
    if (came_from := error.__cause__ or (error.__context__ if ours else None)) is not None:
        yield from _chain(came_from)
