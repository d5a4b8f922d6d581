"""When calls go, wait or are elected, step by step."""

import pytest

from broker.circuit import LATE_S, LONGEST_WAIT_S, Circuit, Go, Probe, Shed, retry_after_s


def test_calls_go_until_the_api_asks_to_be_left_alone() -> None:
    circuit = Circuit(has_probe=True)
    for status in (200, 404, 500, 502, 504):
        assert circuit.ask(0) == Go()
        circuit.answered(0, status, None)
    assert circuit.ask(0) == Go()


def test_a_429_is_waited_out_whatever_the_health_check_would_say() -> None:
    circuit = Circuit(has_probe=True)
    circuit.answered(10, 429, 5)
    assert circuit.ask(10) == Shed(5)
    assert circuit.ask(12.5) == Shed(3)
    assert circuit.ask(14.999) == Shed(1)
    assert circuit.ask(15) == Go(first=1)


@pytest.mark.parametrize(
    ("asked", "waits"), [(None, 1), (0.0, 0), (7.0, 7), (30.0, 30), (31.0, 30), (1e9, 30)]
)
@pytest.mark.parametrize("status", [429, 503])
def test_the_wait_is_what_was_asked_for_up_to_the_cap(status: int, asked: float | None, waits: int) -> None:
    circuit = Circuit(has_probe=False)
    circuit.answered(100, status, asked)
    if waits:
        assert circuit.ask(100) == Shed(waits)
    assert circuit.ask(100 + waits) == Go(first=1)


def test_a_503_elects_one_call_a_second_to_look() -> None:
    circuit = Circuit(has_probe=True)
    circuit.answered(0, 503, 20)
    assert circuit.ask(0) == Probe()
    assert circuit.ask(0.5) == Shed(20)
    circuit.probed(healthy=False)
    assert circuit.ask(0.9) == Shed(20)
    assert circuit.ask(1.0) == Probe()
    circuit.probed(healthy=True)
    assert circuit.ask(1.1) == Go(first=1)
    assert circuit.ask(1.1) == Shed(1)
    circuit.answered(1.2, 200, None, first=1)
    assert circuit.ask(1.2) == Go()


def test_without_a_health_check_a_503_is_waited_out() -> None:
    circuit = Circuit(has_probe=False)
    circuit.answered(0, 503, 3)
    assert circuit.ask(2.9) == Shed(1)
    assert circuit.ask(3) == Go(first=1)


def test_a_healthy_look_does_not_end_a_429() -> None:
    circuit = Circuit(has_probe=True)
    circuit.answered(0, 503, 20)
    assert circuit.ask(0) == Probe()
    circuit.answered(0, 429, 10)
    circuit.probed(healthy=True)
    assert circuit.ask(5) == Shed(5)
    assert circuit.ask(10) == Go(first=1)


def test_a_later_answer_makes_a_wait_longer_and_never_shorter() -> None:
    circuit = Circuit(has_probe=False)
    circuit.answered(0, 429, 20)
    circuit.answered(1, 429, 1)
    circuit.answered(2, 200, None)
    assert circuit.ask(2) == Shed(18)
    circuit.answered(3, 429, 30)
    assert circuit.ask(3) == Shed(30)


def test_after_a_wait_one_call_goes_first_and_its_end_lets_the_others_go() -> None:
    circuit = Circuit(has_probe=False)
    circuit.answered(0, 429, 1)
    assert [circuit.ask(1) for _ in range(3)] == [Go(first=1), Shed(1), Shed(1)]
    circuit.ended(first=0)  # an older call's end says nothing
    assert circuit.ask(1.5) == Shed(1)
    circuit.ended(first=1)
    assert circuit.ask(1.5) == Go()


def test_a_first_call_that_is_turned_away_begins_another_wait() -> None:
    circuit = Circuit(has_probe=False)
    circuit.answered(0, 429, 1)
    assert circuit.ask(1) == Go(first=1)
    circuit.answered(1, 429, 2, first=1)
    assert circuit.ask(2) == Shed(1)
    assert circuit.ask(3) == Go(first=2)


def test_the_end_of_an_earlier_first_call_does_not_end_a_wait_that_came_after_it() -> None:
    circuit = Circuit(has_probe=False)
    circuit.answered(0, 429, 1)
    assert circuit.ask(1) == Go(first=1)
    circuit.answered(1, 429, 1)  # of a call from before the first wait
    circuit.ended(first=1)
    assert circuit.ask(2) == Go(first=2)
    assert circuit.ask(2) == Shed(1)


def test_what_never_ends_does_not_hold_the_others_for_good() -> None:
    circuit = Circuit(has_probe=True)
    circuit.answered(0, 503, LONGEST_WAIT_S)
    assert circuit.ask(0) == Probe()
    assert circuit.ask(LATE_S - 0.1) == Shed(1)
    assert circuit.ask(LATE_S) == Go(first=1)
    assert circuit.ask(2 * LATE_S - 0.1) == Shed(1)
    assert circuit.ask(2 * LATE_S) == Go(first=2)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        (" 7 ", 7),
        ("99999999999999999999", LONGEST_WAIT_S),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 10),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 10),
        ("Sun, 06 Nov 1994 08:49:00 GMT", 0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("٣", None),
        ("Sun, 99 Nov 1994 08:49:37 GMT", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date(value: str, seconds: float | None) -> None:
    assert retry_after_s(value, 784111767) == seconds
