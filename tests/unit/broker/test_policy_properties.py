"""The decision against a reference that turns each route into one regular expression over the whole request line."""

import re
from urllib.parse import parse_qsl, unquote, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from broker.message import Call, Pairs
from broker.policy import Allowed, decide
from plimsoll.contract.grants import METHODS, Route, parse_route

PARTS = st.sampled_from(
    ["v1", "a", "A", "..", ".", "", "%2e", "x;y", "a b", "é", "a" * 128, "a" * 129, "*", "\n", "\\"]
)
PATHS = st.lists(PARTS, max_size=4).map(lambda parts: "/" + "/".join(parts)) | st.text(max_size=12)
KEYS = st.sampled_from(["page", "limit", "Page", "", "x y", "filter[a]"])
QUERIES = st.lists(st.tuples(KEYS, st.text(max_size=6)), max_size=3).map(tuple)
NAMES = st.from_regex(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,3}", fullmatch=True)
SEGMENTS = st.lists(NAMES | st.just("*") | st.sampled_from(["v1", "a"]), max_size=3).map(tuple)
LISTED = st.lists(st.sampled_from(["page", "limit", "filter[a]"]), unique=True, max_size=3).map(tuple)


def route(method: str, segments: tuple[str, ...], query: tuple[str, ...], closing: int) -> Route:
    return Route(method, segments, query, bool(closing and segments))


ROUTES = st.builds(route, st.sampled_from(METHODS), SEGMENTS, LISTED, st.integers(0, 1))


def pattern(found: Route) -> re.Pattern[str]:
    wild = r"(?!\.+(?:/|$))[A-Za-z0-9._~\-]{1,128}"
    parts = [wild if part == "*" else re.escape(part) for part in found.segments]
    return re.compile("/" + "/".join(parts) + ("/" if found.closing_slash else ""))


def plain(text: str) -> bool:
    return all(character >= " " and not "\x7f" <= character <= "\x9f" for character in text)


def reference(routes: list[Route], method: str, path: str, query: Pairs) -> Route | None:
    for found in routes:
        same = found.method == method and pattern(found).fullmatch(path)
        if same and {key for key, _ in query} <= set(found.query):
            return found if all(plain(value) for _, value in query) else None
    return None


@given(st.lists(ROUTES, max_size=4), st.sampled_from([*METHODS, "TRACE", "get"]), PATHS, QUERIES)
def test_the_decision_is_the_references(routes: list[Route], method: str, path: str, query: Pairs) -> None:
    found = decide(routes, Call(method, path, query=query))
    expected = reference(routes, method, path, query)
    assert (found.route if isinstance(found, Allowed) else None) == expected


@given(ROUTES, st.data())
def test_a_call_made_from_a_route_is_allowed_and_sent_as_it_is(found: Route, data: st.DataObject) -> None:
    parts = [data.draw(NAMES) if part == "*" else part for part in found.segments]
    path = "/" + "/".join(parts) + ("/" if found.closing_slash else "")
    values = st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=8)
    query = tuple((key, data.draw(values)) for key in found.query)
    allowed = decide([found], Call(found.method, path, query=query))
    assert isinstance(allowed, Allowed)
    assert allowed.path == path
    split = urlsplit(allowed.target)
    # Nothing in it means something else to a server that decodes it again.
    assert unquote(split.path) == split.path == path
    assert not split.fragment
    assert parse_qsl(split.query, keep_blank_values=True) == list(query)
    assert allowed.target.isascii()


@given(ROUTES)
def test_a_route_is_read_back_as_it_was_written(found: Route) -> None:
    assert parse_route(str(found)) == found


@given(st.text(max_size=20), st.lists(ROUTES, max_size=3))
def test_what_is_allowed_is_made_of_plain_segments(path: str, routes: list[Route]) -> None:
    for method in METHODS:
        found = decide(routes, Call(method, path))
        if isinstance(found, Allowed):
            assert re.fullmatch(r"/([A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*/?)?", found.target)
