"""Rules on a request's header, pure: (header, what is allowed) -> a refusal or None. No rule looks at the body.

Headers are the scope's list: names in lower case, values as bytes. Details never repeat a value.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from app.http.problems import Header
from plimsoll.contract.refusals import Code, Reason, Refusal

Headers = Sequence[Header]

SINGLE = frozenset(
    {
        b"accept",
        b"authorization",
        b"content-length",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"origin",
        b"plimsoll-session",
        b"prefer",
        b"sec-fetch-site",
    }
)
"""Headers on which a decision rests. Sent twice, a gateway and we could read different ones. (Plimsoll-Request-Id: ids.py.)"""

_HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([!-~]{1,512})")
_JSON_TYPE = re.compile(r'application/json(?:[ \t]*;[ \t]*charset="?utf-8"?)?', re.IGNORECASE)
_FORWARDED = frozenset({b"forwarded", b"via", b"x-real-ip", b"x-client-ip", b"true-client-ip"})


def values_of(headers: Headers) -> dict[bytes, str]:
    """The headers by name; of one sent twice the last, so ask `repeated` first."""
    return {name: value.decode("latin-1") for name, value in headers}


def repeated(headers: Headers) -> Refusal | None:
    """A decisive header sent more than once."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in SINGLE:
            if name in seen:
                detail = f"{name.decode().title()} must be sent once"
                return Refusal(Code.INVALID_HEADER, detail, Reason.REQUEST)
            seen.add(name)
    return None


def foreign_host(values: Mapping[bytes, str], allowed: Iterable[str]) -> Refusal | None:
    """A Host that is not on the list: exact, and with any port unless the entry names one."""
    match = _HOST.fullmatch(values.get(b"host", "").lower())
    if match and (match[0] in allowed or match[1] in allowed):
        return None
    detail = "The Host header names no allowed host (PLIMSOLL_ALLOWED_HOSTS)"
    return Refusal(Code.HOST_NOT_ALLOWED, detail, Reason.REQUEST)


def cross_origin(values: Mapping[bytes, str]) -> Refusal | None:
    """A browser asks for a page of another origin: an Origin other than the Host, or a Sec-Fetch-Site that says so."""
    origin, site = values.get(b"origin"), values.get(b"sec-fetch-site", "none")
    host = values.get(b"host", "").lower()
    own_origin = origin is None or origin.lower() in {f"http://{host}", f"https://{host}"}
    if own_origin and site in {"none", "same-origin"}:
        return None
    return Refusal(Code.CROSS_ORIGIN, "Requests from pages of another origin are refused", Reason.PERMISSION)


def forwarded(values: Mapping[bytes, str]) -> Refusal | None:
    """A request that came through a proxy: in insecure mode the loopback address is all the protection there is."""
    if not was_forwarded(values):
        return None
    return Refusal(
        Code.PERMISSION_DENIED, "Insecure mode refuses requests that were forwarded", Reason.PERMISSION
    )


def was_forwarded(values: Mapping[bytes, str]) -> bool:
    """Whether a proxy says that it passed the request on."""
    return any(name in _FORWARDED or name.startswith(b"x-forwarded-") for name in values)


def bearer_token(values: Mapping[bytes, str]) -> str | None:
    """The token of a Bearer Authorization header."""
    match = _BEARER.fullmatch(values.get(b"authorization", ""))
    return match[1] if match else None


def content_type(method: str, values: Mapping[bytes, str]) -> Refusal | None:
    """A body that does not say it is JSON. A form could be sent by any page without a preflight, so it is never read."""
    has_body = values.get(b"content-length", "0") != "0" or b"transfer-encoding" in values
    if method not in {"POST", "PUT", "PATCH"} or not has_body:
        return None
    if _JSON_TYPE.fullmatch(values.get(b"content-type", "")):
        return None
    return Refusal(Code.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json", Reason.REQUEST)
