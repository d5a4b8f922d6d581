"""Whether a refusal proves that nothing ran. The one rule for requests under an Idempotency-Key.

A key may have a run already. Until it was looked up, a refusal proves something of that run only if it follows from the very
bytes of the request, which the run's own request had as well: such a request never ran. Everything that may have changed since
(the token, the room, the settings, the speed of the network) proves nothing, so it carries no mark.
"""

from collections.abc import Iterable
from dataclasses import replace

from app.http.ids import Scope, state_of
from plimsoll.contract.refusals import Code, Reason, Refusal

KEY = b"idempotency-key"
_CHANGING = frozenset({Reason.PERMISSION, Reason.CAPACITY, Reason.ENVIRONMENT})
_CHANGING_CODES = frozenset({Code.REQUEST_TIMEOUT, Code.HOST_NOT_ALLOWED, Code.BODY_TOO_LARGE})
_LOOKED_UP = "plimsoll.key_looked_up"


def as_proven(refusal: Refusal, *, keyed: bool) -> Refusal:
    """`refusal` with its mark, or without it when the request has a key that nobody looked up (`keyed`)."""
    if keyed and (refusal.reason in _CHANGING or refusal.code in _CHANGING_CODES):
        return replace(refusal, reason=None)
    return refusal


def has_key(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request's header holds a key."""
    return any(name == KEY for name, _ in headers)


def may_have_key(head: bytes, end: int | None) -> bool:
    """The same of a raw header that ends before `end`; one that has not come whole may still bring a key."""
    return end is None or KEY in head[:end].lower()


def key_looked_up(scope: Scope) -> None:
    """Remember that what is refused from now on is refused knowing what the key had."""
    state_of(scope)[_LOOKED_UP] = True


def key_is_open(scope: Scope) -> bool:
    """Whether the request has a key that nobody looked up yet."""
    return has_key(scope["headers"]) and not state_of(scope).get(_LOOKED_UP)
