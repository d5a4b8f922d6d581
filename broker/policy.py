"""Which calls a grant allows: a pure function from the profile's routes and one call to a decision.

The rule book, in the order it is applied; the first broken rule decides, and nothing of the call is repeated:

1. The method is one of GET, HEAD, POST, PUT, PATCH, DELETE, spelled so.
2. The path was decoded once, by the JSON parser, and is taken byte for byte: `/`, then segments of
   `[A-Za-z0-9._~-]{1,128}`, none empty, none of dots alone. So there is no query, fragment, percent-encoding, `;`,
   backslash, control character, foreign letter or absolute URL in it.
3. Headers are on the allow list, each once, of visible ASCII.
4. GET and HEAD have no body.
5. A route of the profile has this method and these segments; `*` stands for exactly one.
6. Every query key is one that this route lists. Its value is any text without control characters; we encode it.

What goes upstream is built from the decision alone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import quote

from broker.message import QUERY_VALUES, Call, Pairs
from plimsoll.contract.grants import ANY_SEGMENT, METHODS, SEGMENT, SEGMENTS, Route
from plimsoll.contract.profiles import REQUEST_HEADERS

HEADER_BYTES: Final = 1024
QUERY_BYTES: Final = 4096
_NO_BODY: Final = frozenset({"GET", "HEAD"})
_VISIBLE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Rule(StrEnum):
    """Which rule a denied call broke; append-only."""

    METHOD = "method"
    PATH = "path"
    HEADER = "header"
    BODY = "body"
    ROUTE = "route"
    QUERY = "query"


@dataclass(frozen=True, slots=True)
class Denied:
    """The call goes nowhere. `reason` is one sentence of ours."""

    code: Rule
    reason: str


@dataclass(frozen=True, slots=True)
class Allowed:
    """The call may go upstream, exactly so: `target` is path and query as they are sent."""

    route: Route
    path: str = field(repr=False)
    target: str = field(repr=False)
    headers: Pairs = field(repr=False)


def decide(routes: Sequence[Route], call: Call) -> Allowed | Denied:
    """Whether one of `routes` allows `call`. The first that allows it is the one it is counted under."""
    if call.method not in METHODS:
        return Denied(Rule.METHOD, f"the method must be one of {', '.join(METHODS)}")
    segments = _segments(call.path)
    if isinstance(segments, Denied):
        return segments
    headers = _headers(call.headers)
    if isinstance(headers, Denied):
        return headers
    if call.method in _NO_BODY and call.body is not None:
        return Denied(Rule.BODY, "GET and HEAD have no body")
    return _on_route(routes, call, segments, headers)


@dataclass(frozen=True, slots=True)
class _Segments:
    parts: tuple[str, ...]
    closing_slash: bool


def _segments(path: str) -> _Segments | Denied:
    if not path.startswith("/"):
        return Denied(Rule.PATH, "the path must start with one /")
    closing = len(path) > 1 and path.endswith("/")
    inner = path[1:-1] if closing else path[1:]
    parts = tuple(inner.split("/", SEGMENTS)) if inner or closing else ()
    if len(parts) > SEGMENTS:
        return Denied(Rule.PATH, f"the path must have at most {SEGMENTS} segments")
    if all(SEGMENT.fullmatch(part) for part in parts):
        return _Segments(parts, closing)
    if "?" in path:
        return Denied(Rule.PATH, "the path must hold no query; keys go into query")
    return Denied(Rule.PATH, "the path must have segments of 1 to 128 of [A-Za-z0-9._~-], not of dots alone")


def _headers(headers: Pairs) -> Pairs | Denied:
    found: dict[str, str] = {}
    for name, value in headers:
        # Not lower(): it maps letters beyond ASCII, the Kelvin sign among them, to ones inside.
        key = name.lower() if name.isascii() else name
        if key not in REQUEST_HEADERS:
            return Denied(Rule.HEADER, f"headers must be of {', '.join(sorted(REQUEST_HEADERS))}")
        if key in found:
            return Denied(Rule.HEADER, "a header must come once")
        if len(value) > HEADER_BYTES or not _VISIBLE.fullmatch(value):
            return Denied(
                Rule.HEADER, f"a header's value must be up to {HEADER_BYTES} bytes of visible ASCII"
            )
        found[key] = value
    return tuple(sorted(found.items()))


def _on_route(routes: Sequence[Route], call: Call, segments: _Segments, headers: Pairs) -> Allowed | Denied:
    keys = {key for key, _ in call.query}
    matching = [route for route in routes if route.method == call.method and _same(route, segments)]
    if not matching:
        return Denied(Rule.ROUTE, "no route of the grant has this method and path")
    route = next((route for route in matching if keys <= set(route.query)), None)
    if route is None:
        return Denied(Rule.QUERY, "the route does not list a key of the query")
    query = _query(route, call.query)
    if isinstance(query, Denied):
        return query
    return Allowed(route, call.path, call.path + query, headers)


def _same(route: Route, segments: _Segments) -> bool:
    if len(route.segments) != len(segments.parts) or route.closing_slash != segments.closing_slash:
        return False
    pairs = zip(route.segments, segments.parts, strict=True)
    return all(own in {ANY_SEGMENT, asked} for own, asked in pairs)


def _query(route: Route, query: Pairs) -> str | Denied:
    """The query as it is sent: keys in the route's order, everything but letters, digits and `-._~` encoded."""
    long = Denied(Rule.QUERY, f"a query must be up to {QUERY_BYTES} bytes")
    if sum(len(value) for _, value in query) > QUERY_BYTES:
        return long  # before anything is done for each character
    if len(query) > QUERY_VALUES or any(_CONTROL.search(value) for _, value in query):
        return Denied(Rule.QUERY, f"a query must have up to {QUERY_VALUES} values without control characters")
    ordered = sorted(query, key=lambda pair: route.query.index(pair[0]))
    text = "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in ordered)
    if len(text) > QUERY_BYTES:
        return long
    return "?" + text if text else ""
