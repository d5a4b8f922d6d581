"""Against a reference: the standard parser with a hook that refuses duplicates, and a walk over what it built."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from app.http import strict
from plimsoll.contract.refusals import Refusal

KEYS = st.sampled_from(["a", "b", "\\u0061", "\\ud800", "c"])
SCALARS = st.sampled_from(
    [
        "1",
        "-0",
        "1.5",
        "1e5",
        "1e400",
        "9223372036854775808",
        '"x"',
        '"\\udc00"',
        '"[[{"',
        "true",
        "null",
        "NaN",
    ]
)


def _objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.lists(st.tuples(KEYS, values), max_size=3)
    return members.map(lambda found: "{" + ",".join(f'"{key}":{value}' for key, value in found) + "}")


def _lists(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(values, max_size=3).map(lambda found: "[" + ",".join(found) + "]")


DOCUMENTS = st.recursive(SCALARS, lambda values: _objects(values) | _lists(values), max_leaves=12)
DEEP = st.builds(lambda depth, inner: "[" * depth + inner + "]" * depth, st.integers(0, 40), DOCUMENTS)


class Refused(Exception):
    """The reference refuses."""


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise Refused
    return dict(pairs)


def _constant(_: str) -> None:
    raise Refused


def _walk(value: object, depth: int) -> None:
    match value:
        case dict() | list():
            if depth == 32:
                raise Refused
            for inner in [*value, *value.values()] if isinstance(value, dict) else value:
                _walk(inner, depth + 1)
        case str() if any(0xD800 <= ord(character) <= 0xDFFF for character in value):
            raise Refused
        case float() if value in {float("inf"), float("-inf")}:
            raise Refused
        case int() if not -(2**63) <= value < 2**63:
            raise Refused


def reference(text: str) -> object:
    try:
        value = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_constant)
    except ValueError:
        raise Refused from None
    _walk(value, 0)
    return value


def check(text: str) -> None:
    found = strict.parse_json(text.encode())
    try:
        expected = reference(text)
    except Refused:
        assert isinstance(found, Refusal)
    else:
        assert found == expected


@given(DOCUMENTS | DEEP)
@example('{"a":1,"\\u0061":1}')
def test_the_parser_refuses_what_the_reference_refuses_and_reads_the_rest_alike(text: str) -> None:
    check(text)


@given(DOCUMENTS, st.integers(0, 200), st.sampled_from(['"', "\\", "[", "}", ",", " ", "\x00", "1"]))
def test_it_does_so_for_documents_with_one_character_changed(text: str, place: int, character: str) -> None:
    place = min(place, len(text))
    check(text[:place] + character + text[place + 1 :])


@given(st.binary(max_size=64))
def test_no_bytes_make_it_raise(body: bytes) -> None:
    strict.parse_json(body)
    strict.read_run(body)
