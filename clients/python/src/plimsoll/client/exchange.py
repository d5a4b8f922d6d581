"""What both shells share: the request as httpx2 wants it, the head of an answer, and the transport's errors as ours."""

import time
from collections.abc import Callable
from typing import Any

import httpx2

from plimsoll.client.answers import BODY_LIMIT, Head, too_large
from plimsoll.client.core import Prepared
from plimsoll.client.errors import PlimsollError, RequestTimeout, TransportError
from plimsoll.client.options import Options
from plimsoll.client.progress import Progress
from plimsoll.client.transport import CONNECT_S
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


def failure(error: BaseException, progress: Progress, prepared: Prepared[Any]) -> PlimsollError:
    """The error for a failed transport (checks 15, 16 and 17); names no address and repeats no text of the transport."""
    proof = progress.mark(Reason.ENVIRONMENT)
    timed_out = isinstance(error, TimeoutError | httpx2.TimeoutException)
    what = "did not answer in time" if timed_out else f"could not be reached ({type(error).__name__})"
    message = f"the service {what}: {'nothing was sent' if proof else 'the request may have arrived'}"
    kind = RequestTimeout if timed_out and proof is None else TransportError
    return kind(message, not_dispatched=proof if prepared.starts else None, request_id=prepared.request_id)
