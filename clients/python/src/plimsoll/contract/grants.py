"""The words of a grant, which every side reads alike: routes, origins, and the codes a guest's call can fail with.

A route is `METHOD /path/with/*?key&key`: segments of `[A-Za-z0-9._~-]{1,128}`, `*` for one whole segment, a closing `/`
only if the API wants one, and behind `?` the query keys a call may use, none of which it must use. There is one way to
write each route and each origin, so two texts are equal exactly when they mean the same.
"""

import ipaddress
import re
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NoReturn

from typing_extensions import override

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
SEGMENT: Final = re.compile(r"(?!\.+\Z)[A-Za-z0-9._~-]{1,128}")
"""One segment of a path. Segments of dots alone mean another place to some servers."""
QUERY_KEY: Final = re.compile(r"[A-Za-z0-9._~$\[\]-]{1,64}")
ANY_SEGMENT: Final = "*"
SEGMENTS: Final = 32
QUERY_KEYS: Final = 32
ROUTES: Final = 256
CALLS_DEFAULT: Final = 256
CALLS_CEILING: Final = 100_000
OUT_BYTES: Final = 1 << 20
BACK_BYTES: Final = 4 << 20
IN_FLIGHT: Final = 16
"""Calls of one run that are under way at once; others wait."""
MESSAGE_BYTES: Final = 2 * OUT_BYTES
"""Of a call's message: more than any body of the largest size needs as base64."""
ANSWER_BYTES: Final = 3 * BACK_BYTES + (64 << 10)
"""Of an answer's message: any text of the largest size in any script, as JSON, or any bytes as base64."""

_HOST: Final = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
)
_NUMERIC: Final = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)")
_QUAD: Final = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!\Z)|\Z)){4}")
_ORIGIN: Final = re.compile(r"(https?)://(\[[0-9a-f:]+\]|[a-z0-9.-]+)(?::([1-9][0-9]{0,4}))?")
_PORTS: Final = {"https": 443, "http": 80}
_PORT_MOST: Final = 65535


class CallCode(StrEnum):
    """Why a guest's call failed, stable for guests' programs; append-only."""

    NO_GRANT = "no_grant"
    DENIED = "denied"
    SHED = "shed"
    BUDGET = "budget"
    TOO_LARGE = "too_large"
    CREDENTIAL_ECHOED = "credential_echoed"
    UPSTREAM = "upstream"


class GrantFault(ValueError):
    """A route or an origin that breaks a rule, which the message names; the text is an operator's, never a guest's."""


@dataclass(frozen=True, slots=True)
class Route:
    """One approved method and path. `str()` gives the text it is parsed from."""

    method: str
    segments: tuple[str, ...]
    query: tuple[str, ...] = ()
    closing_slash: bool = False

    @override
    def __str__(self) -> str:
        """The route as it is written in a profile."""
        keys = "?" + "&".join(self.query) if self.query else ""
        closing = "/" if self.closing_slash else ""
        return f"{self.method} /{'/'.join(self.segments)}{closing}{keys}"


def parse_route(text: str) -> Route:
    """The route that `text` means. Raises GrantFault, naming the rule."""
    method, space, target = text.partition(" ")
    if not space or method not in METHODS:
        _bad_route(text, f"must be one of {', '.join(METHODS)}, one space and a path")
    path, question, keys = target.partition("?")
    if not path.startswith("/"):
        _bad_route(text, "must have a path that starts with /")
    closing = len(path) > 1 and path.endswith("/")
    inner = path[1:-1] if closing else path[1:]
    segments = tuple(inner.split("/")) if inner else ()
    _check_segments(text, segments, closing=closing)
    query = tuple(keys.split("&")) if question else ()
    _check_query(text, query)
    return Route(method, segments, query, closing)


def _check_segments(text: str, segments: tuple[str, ...], *, closing: bool) -> None:
    if closing and not segments:
        _bad_route(text, "must hold no empty segment")
    if len(segments) > SEGMENTS:
        _bad_route(text, f"must have at most {SEGMENTS} segments")
    for segment in segments:
        if not segment:
            _bad_route(text, "must hold no empty segment")
        if ANY_SEGMENT in segment and segment != ANY_SEGMENT:
            _bad_route(text, "must use * for one whole segment only")
        if segment != ANY_SEGMENT and not SEGMENT.fullmatch(segment):
            _bad_route(text, "must have segments of 1 to 128 of [A-Za-z0-9._~-], not of dots alone")


def _check_query(text: str, query: tuple[str, ...]) -> None:
    if len(query) > QUERY_KEYS or len(set(query)) != len(query):
        _bad_route(text, f"must list at most {QUERY_KEYS} query keys, each once")
    if not all(QUERY_KEY.fullmatch(key) for key in query):
        _bad_route(text, "must list query keys of 1 to 64 of [A-Za-z0-9._~$[]-], as in ?page&limit")


def _bad_route(text: str, rule: str) -> NoReturn:
    raise GrantFault(f"route {text[:200]!r} {rule}")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an API is: scheme, host and port, nothing else. An IPv6 host is without its brackets."""

    scheme: Literal["https", "http"]
    host: str
    port: int

    @property
    def authority(self) -> str:
        """What the Host header says: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @override
    def __str__(self) -> str:
        """The origin as it is written in a profile."""
        return f"{self.scheme}://{self.authority}"


def parse_origin(text: str) -> Origin:
    """The origin that `text` means. Raises GrantFault, naming the rule.

    Whether its addresses may be spoken to is for the broker to judge, and so is plain http, which only loopback may have.
    """
    found = _ORIGIN.fullmatch(text)
    if found is None:
        raise GrantFault(
            f"origin {text[:200]!r} must be http or https, a lower-case host and perhaps a port, as in https://hr.example.com"
        )
    scheme: Literal["https", "http"] = "https" if found[1] == "https" else "http"
    port = int(found[3]) if found[3] else _PORTS[scheme]
    if port > _PORT_MOST or (found[3] and port == _PORTS[scheme]):
        raise GrantFault(
            f"origin {text[:200]!r} must have a port up to {_PORT_MOST}, left out where it is the scheme's own"
        )
    return Origin(scheme, _host(text, found[2]), port)


def _host(text: str, host: str) -> str:
    if host.startswith("["):
        return _ipv6(text, host[1:-1])
    if not _HOST.fullmatch(host):
        raise GrantFault(
            f"origin {text[:200]!r} must have a host of labels of [a-z0-9-], without a closing dot"
        )
    if _NUMERIC.fullmatch(host.rpartition(".")[2]) and not _QUAD.fullmatch(host):
        # Some resolvers read 2130706433, 0x7f.1 and 0177.0.0.1 as addresses.
        raise GrantFault(
            f"origin {text[:200]!r} must have an IPv4 address of four decimal numbers, or a name"
        )
    return host


def _ipv6(text: str, host: str) -> str:
    with suppress(ValueError):
        if str(ipaddress.IPv6Address(host)) == host:
            return host
    raise GrantFault(f"origin {text[:200]!r} must have an IPv6 address in its shortest form")
