"""One run's room for answers: how much is held, who waits for what, and that nobody waits for ever."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.room import Held, Room

SIZE = 100


async def read(held: Held, size: int, part: int = 10) -> None:
    for _ in range(0, size, part):
        await held.take(part)


async def turns(number: int = 20) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_answers_that_fit_wait_for_nothing_and_leave_all_of_it_behind() -> None:
    room = Room(SIZE)
    async with asyncio.timeout(5), room.hold() as one, room.hold() as other:
        await read(one, 50)
        await read(other, 50)
        assert room.left == 0
    assert room.left == SIZE


async def test_beyond_it_one_answer_goes_on_and_the_next_when_that_was_handed_on() -> None:
    room, handed_on = Room(SIZE), asyncio.Event()
    through: list[str] = []

    async def answer(name: str) -> None:
        async with room.hold() as held:
            await read(held, 80)
            through.append(name)
            await handed_on.wait()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        for name in ("first", "second", "third"):
            group.create_task(answer(name))
            await turns()
        assert through == ["first", "second"]
        handed_on.set()
    assert through == ["first", "second", "third"]
    assert room.left == SIZE


async def test_an_answer_larger_than_all_of_it_comes_whole() -> None:
    room = Room(SIZE)
    async with asyncio.timeout(5), room.hold() as held:
        await read(held, 3 * SIZE)
        assert held.size == 3 * SIZE


async def test_what_it_has_become_counts_until_it_is_handed_on() -> None:
    room = Room(SIZE)
    async with room.hold() as held:
        await read(held, 30)
        held.becomes(90)
        assert room.left == 10
    assert room.left == SIZE


async def test_whoever_is_cancelled_leaves_its_part_and_its_turn() -> None:
    room = Room(SIZE)

    async def answer() -> None:
        async with room.hold() as held:
            await read(held, 2 * SIZE)
            await asyncio.Event().wait()

    goes, waits = asyncio.create_task(answer()), asyncio.create_task(answer())
    await turns(60)
    for task in (waits, goes):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with asyncio.timeout(5), room.hold() as held:
        await read(held, 2 * SIZE)
    assert (room.left, room.turn.locked()) == (SIZE, False)


@given(st.lists(st.integers(1, 250), min_size=1, max_size=12))
@settings(deadline=None)
def test_whatever_the_sizes_all_come_through_and_little_more_than_the_room_is_held(sizes: list[int]) -> None:
    async def all_of_them() -> int:
        room, least = Room(SIZE), SIZE

        async def answer(size: int) -> None:
            nonlocal least
            async with room.hold() as held:
                for _ in range(size):
                    await held.take(1)
                    least = min(least, room.left)
                await asyncio.sleep(0)

        async with asyncio.timeout(20):
            await asyncio.gather(*map(answer, sizes))
        assert room.left == SIZE
        return SIZE - least

    assert asyncio.run(all_of_them()) <= SIZE + max(sizes)
