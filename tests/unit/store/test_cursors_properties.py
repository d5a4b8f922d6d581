"""A cursor is good for the list it came from, in its one spelling, and for nothing else."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.store import cursors

IDS = st.text("0123456789abcdef", min_size=32, max_size=32)
CALLERS = st.none() | IDS


@given(st.integers(0, 2**53), IDS, CALLERS)
def test_it_leads_back_to_its_position(created: int, run_id: str, caller: str | None) -> None:
    assert cursors.read(cursors.make(created, run_id, caller), caller) == (created, run_id)


@given(st.integers(0, 2**53), IDS, CALLERS, CALLERS)
def test_in_another_list_it_is_unknown(created: int, run_id: str, one: str | None, other: str | None) -> None:
    if one != other:
        assert cursors.read(cursors.make(created, run_id, one), other) is None


@given(st.text(max_size=200), CALLERS)
def test_garbage_is_unknown_and_never_an_error(text: str, caller: str | None) -> None:
    assert cursors.read(text, caller) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda cursor: cursor + "=",
        lambda cursor: cursor + "A",
        lambda cursor: " " + cursor,
        lambda cursor: cursor + "\n",
        lambda cursor: cursor[:-1],
        lambda cursor: base64.b64encode(base64.urlsafe_b64decode(cursor + "==") + b" ").decode(),
        lambda cursor: "A" * 100_000,
    ],
)
def test_there_is_one_spelling(change: object) -> None:
    assert callable(change)
    assert cursors.read(change(cursors.make(5, "ab" * 16, None)), None) is None


def test_a_position_with_leading_zeros_is_unknown() -> None:
    text = base64.urlsafe_b64decode(cursors.make(5, "ab" * 16, None) + "==").decode()
    padded = base64.urlsafe_b64encode(text.replace(".5.", ".05.").encode()).decode().rstrip("=")
    assert cursors.read(padded, None) is None
