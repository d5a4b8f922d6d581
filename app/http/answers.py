"""Refusals as answers: for ASGI code, for routes, and in place of the framework's own error pages."""

from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from app import log
from app.http.budget import NO_ROOM, Take
from app.http.connect import SERVICE_PATH, answer_bytes
from app.http.faults import faults_in
from app.http.ids import Scope, request_id_of
from app.http.problems import Problem, mark_of, status_of
from app.http.proof import as_proven, key_is_open
from plimsoll.contract.refusals import Code, Reason, Refusal, Refused, invalid

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Handler = Callable[[Request, Any], Coroutine[Any, Any, Response]]

_AREAS = (
    "/v1/runs",
    "/v1/describe",
    "/v1/providers",
    "/v1/evidence",
    "/v1/grants",
    "/healthz",
    "/readyz",
    SERVICE_PATH,
)
INTERNAL = Refusal(Code.INTERNAL, "Something of ours failed; whether anything ran is not known")
_NOT_FOUND = Refusal(Code.NOT_FOUND, "Nothing is here", Reason.REQUEST)
_BODY_ENDED = Refusal(Code.INVALID_REQUEST, "The body ended early", Reason.REQUEST)


def logged_problem(refusal: Refusal, request_id: str, path: str, *, keyed: bool, peer: str = "") -> Problem:
    """A complete answer to a request for `path` (which decides its form), logged once, where it is made.

    `keyed`: the request has, or may have, an Idempotency-Key that nobody looked up. `peer` is the address it came from.
    """
    refusal = as_proven(refusal, keyed=keyed)
    status, headers, body = answer_bytes(refusal, request_id, path)
    reason = mark_of(refusal)
    log.refused(
        refusal.code, status=status, reason=reason, request_id=request_id, peer=peer, area=area_of(path)
    )
    return status, headers, body


def area_of(path: str) -> str:
    """Which of our routes a path belongs to, for the log: a word of ours, never what a stranger wrote."""
    return next((area for area in _AREAS if path == area or path.startswith(f"{area}/")), "other")


async def send_problem(send: Send, refusal: Refusal, scope: Scope) -> None:
    """Answer an ASGI request with `refusal`."""
    status, headers, body = _problem_of(scope, refusal)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def problem_response(scope: Scope, refusal: Refusal) -> Response:
    """The answer of a route that refuses; logs it."""
    status, headers, body = _problem_of(scope, refusal)
    response = Response(body, status)
    response.raw_headers = headers
    return response


def _problem_of(scope: Scope, refusal: Refusal) -> Problem:
    client = scope.get("client")
    peer = client[0] if client else "unix"
    return logged_problem(refusal, request_id_of(scope), scope["path"], keyed=key_is_open(scope), peer=peer)


async def read_body(receive: Receive, limit: int, take: Take = lambda _: True) -> bytes | Refusal:
    """The whole body, or a refusal when it is longer than `limit`, ends early, or has no room (`take`, part by part)."""
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return _BODY_ENDED
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            return too_large(limit)
        if not take(len(part)):
            return NO_ROOM
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


def too_large(limit: int) -> Refusal:
    """A body over `limit` bytes."""
    return Refusal(Code.BODY_TOO_LARGE, f"The body must be at most {limit} bytes", Reason.REQUEST)


def exception_handlers() -> dict[int | type[Exception], Handler]:
    """For `FastAPI(exception_handlers=…)`: 404, 405, validation errors, `Refused` and everything else become problems."""
    return {
        HTTPException: _answer_with(_of_http),
        RequestValidationError: _answer_with(_of_validation),
        Refused: _answer_with(_of_refused),
        Exception: _answer_with(lambda _: INTERNAL),
    }


def _answer_with(translate: Callable[[Any], Refusal]) -> Handler:
    async def handler(request: Request, error: Exception) -> Response:
        return problem_response(request.scope, translate(error))

    return handler


def _of_http(error: HTTPException) -> Refusal:
    """The framework's own: only routing raises them here, before a route was reached."""
    if error.status_code == status_of(Code.NOT_FOUND):
        return _NOT_FOUND
    if error.status_code == status_of(Code.METHOD_NOT_ALLOWED):
        allow = tuple((name, value) for name, value in (error.headers or {}).items() if name == "Allow")
        detail = "This method is not served here"
        return Refusal(Code.METHOD_NOT_ALLOWED, detail, Reason.REQUEST, headers=allow)
    return INTERNAL


def _of_validation(error: RequestValidationError) -> Refusal:
    """Path and query parameters. The leading part of a location says which of them; a caller knows the name."""
    return invalid(*faults_in(error.errors(), drop=1))


def _of_refused(error: Refused) -> Refusal:
    return error.refusal
