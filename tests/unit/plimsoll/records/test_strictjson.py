"""A text that two parsers could read in two ways is refused, and the refusal never repeats it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.records.strictjson import JsonFault, loads

SECRET = b"hunter2"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"hunter2",
        b'{"a": 1, "a": 2}',
        b'{"b": [{"a": 1, "\\u0061": 2}]}',
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": "\\ud800"}',
        b'{"\\udfff": 1}',
        b'{"a": "\xff"}',
        b"\xef\xbb\xbf{}",
        b"[" * 33 + b"]" * 33,
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a": ' * 40 + b"1" + b"}" * 40,
        b'{"hunter2": 1, "hunter2": 2}',
        b"1" * 5000,
    ],
)
def test_ambiguous_or_broken_text_is_refused(data: bytes) -> None:
    with pytest.raises(JsonFault) as caught:
        loads(data)
    assert SECRET.decode() not in str(caught.value)


def test_the_deepest_allowed_nesting_is_read() -> None:
    assert loads(b"[" * 32 + b"]" * 32)


def test_a_surrogate_pair_is_a_character() -> None:
    assert loads(b'"\\ud83d\\udea2"') == "\N{SHIP}"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc"), inner, max_size=4),
    max_leaves=15,
)  # fmt: skip


@given(VALUES)
def test_ordinary_json_is_read_as_it_is(value: object) -> None:
    assert loads(json.dumps(value).encode()) == value
