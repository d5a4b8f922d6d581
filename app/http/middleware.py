"""The service's ASGI middleware, pure (no framework base class), applied by `rim`.

From the outside in: request id, security headers and the net for unhandled exceptions (`Envelope`); then, before a byte of the
body is asked for, host, browser, forwarding, authentication and content type (`Gate`). A refused request reaches no route.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import log
from app.http import checks
from app.http.answers import INTERNAL, send_problem
from app.http.ids import HEADER, new_request_id, read_request_id, request_id_of, set_caller, set_request_id
from app.http.problems import SECURITY_HEADERS, Header
from app.identity import ANONYMOUS, Caller, token_sha256
from plimsoll.contract.refusals import Code, Reason, Refusal, Refused

Authenticate = Callable[[str], Awaitable[Caller | None]]
"""From a token's SHA-256 (hex) to its caller, or None. May raise `Refused`, for example when the database is down."""

PUBLIC_PATHS = frozenset({"/healthz", "/readyz", "/.well-known/jwks.json"})
"""Neither a token nor an allowed host is needed for these; probes know neither."""
CACHED: dict[str, Header] = {"/.well-known/jwks.json": (b"cache-control", b"public, max-age=300")}
"""What may be kept by whoever asks, once it is there; of all else nothing is."""
_OK = 200


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
    digest: Callable[[str], str | None] = token_sha256
    """From a token to what `authenticate` is asked with; None for garbage. A private service takes tokens of any form."""
    local_hint: str = ""
    """Instead of `token_hint` where no proxy passed the request on; it may name places of this machine."""
    spend: Callable[[str], int] = lambda _: 0
    """Count a request of this caller; 0, or the seconds until it may ask again."""


def rim(app: ASGIApp, access: Access, *, new_id: Callable[[], str] = new_request_id) -> ASGIApp:
    """Wrap `app` (FastAPI with `exception_handlers()`) in everything that stands before a route."""
    return Envelope(Gate(app, access), new_id)


class Envelope:
    """Every answer carries its request id and the security headers; whatever is raised inside becomes an answer."""

    def __init__(self, app: ASGIApp, new_id: Callable[[], str]) -> None:
        self._app, self._new_id = app, new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; lifespan events pass through."""
        if scope["type"] != "http":
            await self._lifespan(scope, receive, send)
            return
        sent = read_request_id(scope["headers"])
        request_id = sent if isinstance(sent, str) else self._new_id()
        set_request_id(scope, request_id)
        answer = _Answer(send, scope)
        if isinstance(sent, Refusal):
            await send_problem(answer, sent, scope)
            return
        await self._guarded(scope, receive, answer)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A failed start is otherwise reported only as text, which our log does not write."""
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            log.failure(log.logger, "lifespan_failed", error)
            raise

    async def _guarded(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        try:
            await self._app(scope, receive, answer)
        except Refused as refused:
            await answer.instead(refused.refusal)
        except Exception as error:  # noqa: BLE001 - the outermost net
            log.failure(log.logger, "unhandled", error, request_id=request_id_of(scope))
            await answer.instead(INTERNAL)


class _Answer:
    """The `send` of one request: completes the headers, and knows whether the answer has begun."""

    _OWN: ClassVar[frozenset[bytes]] = frozenset({HEADER, *(name for name, _ in SECURITY_HEADERS)})

    def __init__(self, send: Send, scope: Scope) -> None:
        self._send, self._scope = send, scope
        self._begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begun = True
            message["headers"] = [
                *self._foreign(message),
                (HEADER, request_id_of(self._scope).encode()),
                *self._security(message),
            ]
        await self._send(message)

    def _security(self, message: Message) -> list[Header]:
        cached = CACHED.get(self._scope["path"]) if message["status"] == _OK else None
        if cached is None:
            return SECURITY_HEADERS
        return [cached, *(header for header in SECURITY_HEADERS if header[0] != cached[0])]

    def _foreign(self, message: Message) -> list[Header]:
        return [header for header in message.get("headers", ()) if header[0] not in self._OWN]

    async def instead(self, refusal: Refusal) -> None:
        """Answer with `refusal`, unless an answer has begun: then only the connection's end can say that it failed."""
        if not self._begun:
            await send_problem(self, refusal, self._scope)


class Gate:
    """Refuses before the body is asked for; whoever passes is a known caller, kept in the scope."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through to the routes, or answer it."""
        if scope["type"] == "http" and (refusal := await self._refusal(scope)) is not None:
            await send_problem(send, refusal, scope)
            return
        await self._app(scope, receive, send)

    async def _refusal(self, scope: Scope) -> Refusal | None:
        """The first broken rule, in the order that tells a stranger least."""
        headers, access = scope["headers"], self._access
        if (refusal := checks.repeated(headers)) is not None or scope["path"] in PUBLIC_PATHS:
            return refusal
        values = checks.values_of(headers)
        return (
            checks.foreign_host(values, access.hosts)
            or checks.cross_origin(values)
            or (checks.forwarded(values) if access.insecure else None)
            or await self._authenticate(scope, values)
            or checks.content_type(scope["method"], values)
        )

    async def _authenticate(self, scope: Scope, values: dict[bytes, str]) -> Refusal | None:
        try:
            caller = await self._caller(values)
        except Refused as refused:
            return refused.refusal
        if caller is None:
            return Refusal(Code.UNAUTHENTICATED, self._hint(values), Reason.PERMISSION)
        set_caller(scope, caller)
        if wait_s := self._access.spend(caller.id):
            detail = "This caller's rate of requests is used up."
            return Refusal(Code.RATE_LIMITED, detail, Reason.CAPACITY, retry_after_s=wait_s)
        return None

    def _hint(self, values: dict[bytes, str]) -> str:
        access = self._access
        if checks.bearer_token(values) is not None:
            return "The token is unknown, expired or revoked. " + access.token_hint
        return access.token_hint if checks.was_forwarded(values) else access.local_hint or access.token_hint

    async def _caller(self, values: dict[bytes, str]) -> Caller | None:
        """Garbage costs no query: only a token whose checksum is right is looked up."""
        if self._access.insecure and b"authorization" not in values:
            return ANONYMOUS
        token = checks.bearer_token(values)
        digest = self._access.digest(token) if token is not None else None
        return None if digest is None else await self._access.authenticate(digest)
