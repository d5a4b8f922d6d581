"""Request ids and the caller, as typed entries of an ASGI scope's state."""

import re
import secrets
from collections.abc import Iterable, MutableMapping
from typing import Any

from app.identity import Caller
from plimsoll.contract import bounds
from plimsoll.contract.refusals import Code, Reason, Refusal

Scope = MutableMapping[str, Any]

HEADER = b"plimsoll-request-id"
_LINE = re.compile(rb"\nplimsoll-request-id:[ \t]*([^\r\n]*?)[ \t]*(?=\r?\n)", re.IGNORECASE)

ILL_FORMED = Refusal(
    Code.INVALID_HEADER, "Plimsoll-Request-Id must be sent once, as 32 lowercase hex digits", Reason.REQUEST
)

_ID_KEY = "plimsoll.request_id"
_CALLER_KEY = "plimsoll.caller"


def new_request_id() -> str:
    """128 random bits in hex."""
    return secrets.token_hex(16)


def read_request_id(headers: Iterable[tuple[bytes, bytes]]) -> str | Refusal | None:
    """The caller's id, None when it sent none, a refusal when what it sent is ill-formed or sent twice."""
    return _read([value for name, value in headers if name == HEADER])


def read_raw_request_id(head: bytes) -> str | None:
    """The caller's id in a header we could not or would not parse, when it is there once and well-formed."""
    if HEADER not in head.lower():  # most have none, and a plain search is far cheaper than the expression
        return None
    found = _read(_LINE.findall(head))
    return found if isinstance(found, str) else None


def _read(values: list[bytes]) -> str | Refusal | None:
    if not values:
        return None
    text = values[0].decode("latin-1")
    return text if len(values) == 1 and bounds.REQUEST_ID.fullmatch(text) else ILL_FORMED


def state_of(scope: Scope) -> dict[str, Any]:
    """The request's own state; a server without lifespan state gives none, so it is made here."""
    state: dict[str, Any] = scope.setdefault("state", {})
    return state


def set_request_id(scope: Scope, request_id: str) -> None:
    """Remember the id under which this request is answered."""
    state_of(scope)[_ID_KEY] = request_id


def request_id_of(scope: Scope) -> str:
    """The id under which this request is answered."""
    request_id: str = scope["state"][_ID_KEY]
    return request_id


def set_caller(scope: Scope, caller: Caller) -> None:
    """Remember who was authenticated."""
    state_of(scope)[_CALLER_KEY] = caller


def has_caller(scope: Scope) -> bool:
    """Whether somebody was authenticated."""
    return _CALLER_KEY in state_of(scope)


def caller_of(scope: Scope) -> Caller:
    """The authenticated caller; a KeyError on a public path, where there is none."""
    caller: Caller = scope["state"][_CALLER_KEY]
    return caller
