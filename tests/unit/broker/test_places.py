"""Who gets a place for a request, who waits for one, and that nobody waits for ever."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.places import PLACES, Places

SLOW, OTHER = "https://slow", "https://other"


@dataclass
class House:
    """Requests that have their place until they are told to end."""

    places: Places = field(default_factory=Places)
    inside: list[str] = field(default_factory=list)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    ends: dict[str, asyncio.Event] = field(default_factory=dict)

    async def ask(self, caller: str, origin: str, count: int = 1) -> list[str]:
        """So many requests; their names."""
        names = [f"{caller} {origin} {len(self.tasks) + number}" for number in range(count)]
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._one(name, caller, origin))
        await turns()
        return names

    async def _one(self, name: str, caller: str, origin: str) -> None:
        async with self.places.share(caller, origin):
            self.inside.append(name)
            try:
                await self.ends[name].wait()
            finally:
                self.inside.remove(name)

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await turns()

    def of(self, caller: str) -> int:
        return Counter(name.split()[0] for name in self.inside)[caller]


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def house(places: Places | None = None) -> AsyncIterator[House]:
    found = House(places or Places())
    try:
        yield found
    finally:
        for task in found.tasks.values():
            task.cancel()
        await asyncio.gather(*found.tasks.values(), return_exceptions=True)
    assert found.places.free == (PLACES if places is None else places._total)
    assert not found.places._callers
    assert not found.places._origins
    assert not found.places._waiting


async def test_seventeen_runs_of_one_caller_leave_places_for_everybody_else() -> None:
    async with house() as asked:
        await asked.ask("greedy", SLOW, 17 * 16)
        assert asked.of("greedy") == PLACES // 2
        for caller, origin in (("other", OTHER), ("third", SLOW), ("fourth", OTHER)):
            await asked.ask(caller, origin, 16)
            assert asked.of(caller) == 16
        assert asked.of("greedy") == PLACES // 2


async def test_what_was_lent_is_taken_back_as_requests_end() -> None:
    async with house() as asked:
        greedy = await asked.ask("greedy", SLOW, 17 * 16)
        await asked.ask("other", OTHER, 100)
        assert asked.of("other") == PLACES // 4
        for name in greedy[:40]:
            await asked.end(name)
        assert asked.of("greedy") == 128 - 40
        assert asked.of("other") == 84  # as many as are free
        assert asked.places.free == 84


async def test_a_caller_alone_gets_all_of_its_requests_through_in_their_order() -> None:
    async with house(Places(8, sure=2)) as asked:
        names = await asked.ask("one", SLOW, 20)
        seen = []
        while asked.inside:
            assert len(asked.inside) <= 4
            seen.append(asked.inside[0])
            await asked.end(asked.inside[0])
        assert seen == names


async def test_one_slow_api_of_many_callers_leaves_places_for_others() -> None:
    async with house() as asked:
        for number in range(40):
            await asked.ask(f"caller-{number}", SLOW, 16)
        assert len(asked.inside) == PLACES * 3 // 4
        await asked.ask("another", OTHER, 16)
        assert asked.of("another") == 16


@pytest.mark.parametrize("given_already", [False, True])
async def test_who_stops_waiting_takes_no_place_along(*, given_already: bool) -> None:
    async with house(Places(2, sure=1)) as asked:
        (first,) = await asked.ask("one", SLOW)
        waiting, behind = await asked.ask("one", SLOW, 2)
        if given_already:
            asked.ends[first].set()
            await asyncio.sleep(0)  # the place is given, and its asker has not gone on yet
        asked.tasks[waiting].cancel()
        with suppress(asyncio.CancelledError):
            await asked.tasks[waiting]
        await asked.end(first)
        assert asked.inside == [behind]


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("ask"), st.integers(0, 3), st.integers(0, 2)),
            st.tuples(st.sampled_from(["end", "cancel"]), st.integers(0, 40), st.just(0)),
        ),
        max_size=60,
    )
)
def test_whatever_happens_everybody_gets_through(steps: Sequence[tuple[str, int, int]]) -> None:
    async def run() -> None:
        async with house(Places(6, sure=1)) as asked:
            for what, which, origin in steps:
                open_ = [name for name, task in asked.tasks.items() if not task.done()]
                if what == "ask":
                    await asked.ask(f"caller-{which}", f"api-{origin}")
                elif open_ and what == "cancel":
                    asked.tasks[open_[which % len(open_)]].cancel()
                    await turns()
                elif asked.inside:
                    await asked.end(asked.inside[which % len(asked.inside)])
                assert len(asked.inside) == 6 - asked.places.free
                assert 0 <= asked.places.free <= 6
            while asked.inside:
                await asked.end(asked.inside[0])
            assert all(task.done() for task in asked.tasks.values())

    asyncio.run(run())
