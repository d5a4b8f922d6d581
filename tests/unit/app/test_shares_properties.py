"""Whatever is configured, all sandboxes together keep to the total memory."""

from hypothesis import given
from hypothesis import strategies as st

from app.shares import MOST_SLOTS, least_total, slots

MEMORY = st.dictionaries(
    st.sampled_from(["wasm", "docker", "docker@runsc", "docker@kata", "docker@crun"]),
    st.integers(1, 70_000),
    min_size=1,
)
TOTAL = st.integers(0, 1 << 20)


@given(TOTAL, MEMORY)
def test_the_sum_never_exceeds_the_total(total: int, memory: dict[str, int]) -> None:
    given_out = slots(total, memory)
    assert set(given_out) == set(memory)
    assert sum(given_out[each] * memory[each] for each in memory) <= total
    assert all(0 <= each <= MOST_SLOTS for each in given_out.values())


@given(TOTAL, MEMORY)
def test_nobody_gets_less_than_an_equal_share_unless_it_has_no_use_for_it(
    total: int, memory: dict[str, int]
) -> None:
    given_out, equal = slots(total, memory), total // len(memory)
    assert all(given_out[each] >= min(MOST_SLOTS, equal // memory[each]) for each in memory)


@given(TOTAL, MEMORY)
def test_equal_providers_get_equal_slots(total: int, memory: dict[str, int]) -> None:
    given_out = slots(total, memory)
    assert len(set(zip(memory.values(), given_out.values(), strict=True))) == len(set(memory.values()))


@given(MEMORY)
def test_the_least_total_gives_everybody_a_slot_and_one_less_does_not(memory: dict[str, int]) -> None:
    least = least_total(memory)
    assert all(slots(least, memory).values())
    assert not all(slots(least - 1, memory).values())


def test_what_wasm_has_no_use_for_goes_to_docker() -> None:
    assert slots(4096, {"wasm": 64}) == {"wasm": 32}
    assert slots(4096, {"docker@runsc": 512, "docker": 512, "wasm": 64}) == {
        "docker@runsc": 2, "docker": 2, "wasm": 21,
    }  # fmt: skip
    assert slots(16384, {"docker": 512, "wasm": 64}) == {"docker": 28, "wasm": 32}
