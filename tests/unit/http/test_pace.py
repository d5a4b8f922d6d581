"""Turns of strangers: some at once, then at a rate, each address for itself; callers give theirs back."""

import dataclasses

import pytest

from app.http import pace
from app.http.limits import DEFAULTS
from app.http.pace import Pace, Turns

LIMITS = dataclasses.replace(DEFAULTS, per_address=4, strangers_per_s=10.0, all_strangers_per_s=20.0)


def test_a_burst_goes_at_once_and_then_each_waits_for_its_own_moment() -> None:
    turns = Turns(rate=10, burst=4)
    assert [turns.take(100.0) for _ in range(6)] == pytest.approx([100, 100, 100, 100, 100.1, 100.2])
    assert turns.take(100.05) == pytest.approx(100.3)
    assert [turns.take(200.0) for _ in range(5)] == pytest.approx([200, 200, 200, 200, 200.1])


def test_addresses_do_not_wait_for_each_other_and_a_trusted_one_for_none() -> None:
    paced = Pace(LIMITS)
    assert max(paced.turn("a", 0.0) for _ in range(40)) == pytest.approx(3.6)
    assert paced.turn("b", 0.0) == 0
    assert {paced.turn(None, 0.0) for _ in range(40)} == {0.0}


def test_a_caller_uses_no_turn() -> None:
    paced = Pace(LIMITS)
    for _ in range(100):
        assert paced.turn("a", 0.0) == 0
        paced.was_caller("a")
    paced.was_caller(None)
    paced.was_caller("never seen")


def test_all_strangers_together_have_one_rate() -> None:
    paced = Pace(LIMITS)
    assert max(paced.was_stranger(0.0) for _ in range(120)) == pytest.approx(5.0)


def test_the_number_of_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_MOST_ADDRESSES", 10)
    paced = Pace(LIMITS)
    for number in range(100):
        paced.turn(str(number), 0.0)
    assert len(paced._addresses) == 10
