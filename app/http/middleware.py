"""The service's ASGI middleware, pure (no framework base class), applied by `rim`.

From the outside in: request id, security headers and the net for unhandled exceptions (`Envelope`); then, before any byte of the
body is asked for, host, browser, forwarding, authentication and content type (`Gate`). A refused request never reaches a route.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.types import ASGIApp

from app.identity import Caller

Authenticate = Callable[[str], Awaitable[Caller | None]]
"""From a token's SHA-256 (hex) to its caller, or None. May raise `Refused`, for example when the database is down."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask, and through which door."""

    authenticate: Authenticate
    hosts: frozenset[str]
    """Lower case; an entry without a port accepts every port."""
    token_hint: str
    """Sentence of a 401: how to make a caller."""
    insecure: bool = False
    """A request without a token is `ANONYMOUS`; one that was forwarded is refused."""


def rim(app: ASGIApp, access: Access) -> ASGIApp:
    """Wrap `app` (FastAPI with `exception_handlers()`) in everything that stands before a route."""
    raise NotImplementedError
