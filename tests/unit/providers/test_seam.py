"""Output is counted on the host side: exact at the cap, bounded beyond it."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.seam import CEILINGS, LOOK_S, LOOKS_S, Meter, NotStarted, Stream, nothing_sent


@pytest.mark.parametrize(("size", "kept"), [(9, 9), (10, 10), (11, 10)])
def test_around_the_cap_every_byte_counts(size: int, kept: int) -> None:
    meter = Meter(10)
    assert len(meter.take("stdout", b"x" * size)) == kept
    assert (meter.truncated("stdout"), meter.truncated("stderr")) == (size > kept, False)


def test_a_flood_is_more_than_the_factor_times_the_cap() -> None:
    meter = Meter(10, factor=2)
    meter.take("stderr", b"x" * 20)
    assert not meter.flooded
    meter.take("stderr", b"x")
    assert meter.flooded


pieces = st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(max_size=30)), max_size=20)


@given(pieces, st.integers(1, 50))
def test_what_is_kept_is_the_head_of_each_stream(sent: list[tuple[Stream, bytes]], cap: int) -> None:
    meter = Meter(cap)
    kept: dict[str, bytes] = {"stdout": b"", "stderr": b""}
    whole: dict[str, bytes] = {"stdout": b"", "stderr": b""}
    for stream, data in sent:
        kept[stream] += meter.take(stream, data)
        whole[stream] += data
    assert kept == {stream: data[:cap] for stream, data in whole.items()}
    for stream in ("stdout", "stderr"):
        assert meter.truncated(stream) is (len(whole[stream]) > cap)


def test_only_known_kinds_may_look_for_longer_and_none_for_minutes() -> None:
    assert LOOKS_S.keys() <= CEILINGS.keys()
    assert all(LOOK_S < longer <= 60 for longer in LOOKS_S.values())


@pytest.mark.parametrize("failure", [ValueError("a secret"), OSError(), asyncio.CancelledError()])
def test_whatever_breaks_before_the_code_leaves_is_told_as_not_started(
    failure: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NotStarted) as told, nothing_sent():
        raise failure
    assert told.value.cause == "not_started"
    assert "secret" not in capsys.readouterr().err


def test_why_nothing_was_started_is_kept() -> None:
    with pytest.raises(NotStarted) as told, nothing_sent():
        raise NotStarted("isolation")
    assert told.value.cause == "isolation"
