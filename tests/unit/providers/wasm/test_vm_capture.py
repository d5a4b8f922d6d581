"""Output bookkeeping, without a guest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def look(stream: Stream, buffer: bytes) -> bytes:
    part = buffer[stream.ahead :][: stream.room_for(len(buffer))]
    stream.take_ahead(part)
    return part


deliveries = st.lists(
    st.tuples(st.binary(max_size=12), st.lists(st.integers(0, 12), max_size=3)), max_size=12
)


@given(deliveries, st.integers(0, 20), st.integers(1, 4))
def test_looking_ahead_changes_nothing_about_the_result(
    made: list[tuple[bytes, list[int]]], cap: int, factor: int
) -> None:
    plain, watched = Stream(cap, factor), Stream(cap, factor)
    handed = b""
    for data, looks in made:
        deliver(plain, data)
        for filled in sorted(looks):
            handed += look(watched, data[:filled])
        head = data[watched.ahead :][: watched.room_for(len(data))]
        watched.add(head, len(data))
        handed += head
        assert (watched.kept, watched.truncated) == (plain.kept, plain.truncated)
        assert (watched.flooded, watched.full) == (plain.flooded, plain.full)
    assert handed == watched.kept


def test_a_delivery_smaller_than_what_was_taken_ahead_brings_nothing() -> None:
    stream = Stream(cap=100, flood_factor=16)
    look(stream, b"0123456789")
    assert stream.room_for(4) == 0
    stream.add(b"", 4)
    assert (stream.kept, stream.truncated, stream.ahead) == (b"0123456789", False, 0)
