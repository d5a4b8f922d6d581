"""Refusals as answers: for ASGI code, for routes, and in place of the framework's own error pages."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.http.ids import Scope
from plimsoll.contract.refusals import Refusal

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Handler = Callable[[Request, Exception], Awaitable[Response]]


def problem_response(scope: Scope, refusal: Refusal) -> Response:
    """The answer of a route that refuses; logs it."""
    raise NotImplementedError


def exception_handlers() -> dict[int | type[Exception], Handler]:
    """For `FastAPI(exception_handlers=…)`: 404, 405, validation errors, `Refused` and everything else become problems."""
    raise NotImplementedError


async def read_body(receive: Receive, limit: int) -> bytes | Refusal:
    """The whole body, or a refusal when it is longer than `limit` or ends early."""
    raise NotImplementedError
