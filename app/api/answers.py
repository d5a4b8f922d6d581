"""Answers of routes, and what openapi.json says every route may answer."""

from typing import Any, NoReturn

from pydantic import BaseModel
from starlette.responses import Response

from plimsoll.contract.refusals import Code, Reason, Refusal, Refused
from plimsoll.contract.rest import Problem

_REQUEST_ID = {
    "description": "32 hex digits: the caller's own, or one of ours when the caller sent none.",
    "required": True,
    "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
}
_MARK = {
    "description": "Present only when it is proven that nothing ran; the reason.",
    "schema": {"type": "string", "enum": [reason.value for reason in Reason]},
}
HEADERS = {"Plimsoll-Request-Id": _REQUEST_ID}
LOCATION: dict[str, Any] = {
    "Location": {"description": "Path of the run.", "required": True, "schema": {"type": "string"}}
}
_OF_STATUS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"description": "`Bearer`.", "required": True, "schema": {"type": "string"}}},
    405: {
        "Allow": {"description": "The methods served here.", "required": True, "schema": {"type": "string"}}
    },
    429: {
        "Retry-After": {
            "description": "Whole seconds.",
            "required": True,
            "schema": {"type": "integer", "minimum": 1},
        }
    },
    502: LOCATION,
}
"""Headers that only one status has."""
_UNMARKED = {500, 502}

_TEXTS = {
    400: "Malformed: the JSON, a header or the host. Marked `request`.",
    401: "No token, or an unknown one. Marked `permission`.",
    403: "The token may not do this, or a browser of another origin asked. Marked `permission`.",
    404: "Unknown, or somebody else's. Marked `request`.",
    405: "Another method. Marked `request`.",
    409: "The Idempotency-Key came with another request before. Marked `request`.",
    408: "The request did not arrive in time. Marked `request`.",
    412: "No worker meets the floor (`isolation`) or the software rule (`environment`). Nothing ran.",
    413: "The body is over the limit. Marked `request`.",
    415: "The body is not plain `application/json`, or it is encoded. Marked `request`.",
    422: "A field broke a rule; `errors` names both. Marked `request`.",
    429: "Rate, concurrency, slots or connections are used up. Marked `capacity`, with `Retry-After`.",
    431: "The header is over the limit. Marked `request`.",
    500: "A fault of ours. Never marked.",
    501: "Nobody here does this, or execution is off. Marked `unsupported` or `protocol`.",
    502: "It was started and its end is not known: it may have run. Never marked; `Location` names the run.",
    503: "A part of ours is down, before anything was started. Marked `environment`.",
}
_EVERYWHERE = (400, 403, 405, 408, 413, 415, 429, 431, 500, 503)
"""What the listener and the middleware may answer in front of any route."""


def public_problems(*more: int) -> dict[int | str, dict[str, Any]]:
    """The problem answers of a route that needs no token: those that every route has, and `more`."""
    return {status: _problem(status) for status in sorted({*_EVERYWHERE, *more})}


def problems(*more: int) -> dict[int | str, dict[str, Any]]:
    """The problem answers of a route that needs a token."""
    return public_problems(401, *more)


def _problem(status: int) -> dict[str, Any]:
    marked = {} if status in _UNMARKED else {"Plimsoll-Not-Dispatched": _MARK}
    content = {"application/problem+json": {"schema": {"$ref": f"#/components/schemas/{Problem.__name__}"}}}
    headers = {**HEADERS, **marked, **_OF_STATUS.get(status, {})}
    return {"description": _TEXTS[status], "headers": headers, "content": content}


def answer(body: BaseModel, status: int = 200, *, sparse: bool = False) -> Response:
    """A JSON answer; the middleware adds the headers that every answer has. `sparse` leaves out what is not known."""
    return Response(body.model_dump_json(exclude_none=sparse), status, media_type="application/json")


def unknown(what: str) -> NoReturn:
    """Somebody else's and an unknown thing answer alike."""
    raise Refused(Refusal(Code.NOT_FOUND, f"No such {what}.", Reason.REQUEST))


def not_allowed(*served: str) -> NoReturn:
    """Another method than those `served` on this path."""
    allow = ("Allow", ", ".join(served))
    detail = "This method is not served here"
    raise Refused(Refusal(Code.METHOD_NOT_ALLOWED, detail, Reason.REQUEST, headers=(allow,)))
