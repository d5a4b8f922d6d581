"""The deadline thread: it interrupts the armed run, no other, and costs nothing while there is none."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from providers.wasm.ticker import Ticker


def _until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)


@pytest.fixture(name="interrupts")
def _interrupts() -> list[int]:
    return []


@pytest.fixture(name="ticker")
def _ticker(interrupts: list[int]) -> Iterator[Ticker]:
    ticker = Ticker(lambda: interrupts.append(time.monotonic_ns()))
    yield ticker
    ticker.close()


def test_an_armed_run_is_interrupted_at_its_deadline_and_not_before(
    ticker: Ticker, interrupts: list[int]
) -> None:
    ticker.start()
    deadline = time.monotonic_ns() + 30_000_000
    ticker.arm(deadline)
    _until(lambda: bool(interrupts))
    assert interrupts[0] >= deadline


def test_it_goes_on_interrupting_until_the_run_is_disarmed(ticker: Ticker, interrupts: list[int]) -> None:
    ticker.start()
    ticker.arm(time.monotonic_ns())
    _until(lambda: len(interrupts) > 2)
    ticker.disarm()
    count = len(interrupts)
    time.sleep(0.05)
    assert len(interrupts) == count


def test_a_watched_run_is_interrupted_before_its_deadline_too_but_not_more_often_than_asked(
    ticker: Ticker, interrupts: list[int]
) -> None:
    ticker.start()
    began, every = time.monotonic_ns(), 20_000_000
    ticker.arm(began + 10**10, every)
    _until(lambda: len(interrupts) >= 4)
    ticker.disarm()
    assert all(at >= began + (n + 1) * every for n, at in enumerate(interrupts))


def test_a_watched_runs_deadline_is_as_sharp_as_any(ticker: Ticker, interrupts: list[int]) -> None:
    ticker.start()
    deadline = time.monotonic_ns() + 30_000_000
    ticker.arm(deadline, 10**9)
    _until(lambda: bool(interrupts))
    assert interrupts[0] >= deadline
    _until(lambda: len(interrupts) >= 3)


def test_a_cancelled_run_is_interrupted_as_if_its_deadline_had_come(
    ticker: Ticker, interrupts: list[int]
) -> None:
    ticker.start()
    cancelled, asked = threading.Event(), []

    def ask() -> bool:
        asked.append(time.monotonic_ns())
        return cancelled.is_set()

    ticker.arm(time.monotonic_ns() + 10**10, 0, ask)
    _until(lambda: len(asked) > 2)
    assert not interrupts
    cancelled.set()
    _until(lambda: len(interrupts) > 2)
    count = len(asked)
    time.sleep(0.03)
    assert len(asked) == count
    ticker.disarm()
    ticker.arm(time.monotonic_ns() + 10**10)
    seen = len(interrupts)
    time.sleep(0.03)
    assert len(interrupts) == seen


def test_an_idle_ticker_sleeps_and_the_next_run_wakes_it(ticker: Ticker, interrupts: list[int]) -> None:
    ticker.start()
    for _ in range(2):
        _until(lambda: ticker._parked)
        seen = len(interrupts)
        ticker.arm(time.monotonic_ns())
        _until(lambda seen=seen: len(interrupts) > seen)  # type: ignore[misc]
        ticker.disarm()


def test_it_runs_only_where_it_was_started(ticker: Ticker) -> None:
    assert not ticker.running
    before = threading.active_count()
    ticker.start()
    ticker.start()
    assert (ticker.running, threading.active_count()) == (True, before + 1)
    ticker.close()
    assert (ticker.running, threading.active_count()) == (False, before)
