"""Output bookkeeping, without a guest."""

import pytest

from providers.wasm.capture import LEAST_CHARGE, Stream


def deliver(stream: Stream, data: bytes, charge: int | None = None) -> None:
    stream.add(data[: stream.room_for(len(data))], len(data), charge=charge)


@pytest.mark.parametrize(("size", "truncated"), [(9, False), (10, False), (11, True)])
def test_the_head_is_kept_up_to_the_cap(size: int, truncated: object) -> None:
    stream = Stream(cap=10, flood_factor=16)
    deliver(stream, bytes(range(size)))
    assert (stream.kept, stream.truncated) == (bytes(range(size))[:10], truncated)


def test_deliveries_add_up() -> None:
    stream = Stream(cap=10, flood_factor=16)
    for _ in range(4):
        deliver(stream, b"abc")
    assert (stream.kept, stream.truncated, stream.full) == (b"abcabcabca", True, True)


@pytest.mark.parametrize(("count", "flooded"), [(16, False), (17, True)])
def test_a_flood_is_more_than_the_factor_times_the_cap(count: int, flooded: object) -> None:
    stream = Stream(cap=10, flood_factor=16)
    for _ in range(count):
        deliver(stream, b"0123456789")
    assert stream.flooded is flooded


def test_an_empty_delivery_costs_something() -> None:
    stream = Stream(cap=LEAST_CHARGE, flood_factor=1)
    deliver(stream, b"", LEAST_CHARGE)
    assert not stream.flooded
    deliver(stream, b"", LEAST_CHARGE)
    assert (stream.flooded, stream.truncated) == (True, False)


def test_nothing_is_kept_by_a_cap_of_zero() -> None:
    stream = Stream(cap=0, flood_factor=16)
    assert stream.full
    deliver(stream, b"x")
    assert (stream.kept, stream.truncated, stream.flooded) == (b"", True, True)
