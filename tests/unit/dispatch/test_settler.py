"""Writes that wait are tried again, in order, bounded, and have a sure end."""

import asyncio

import pytest

from app.dispatch import settler as room
from app.dispatch.settler import Settler
from app.store.values import AlreadyExists, StoreUnavailable


async def test_a_write_is_tried_until_the_database_takes_it() -> None:
    tries = 0

    async def write() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise StoreUnavailable("not_committed")

    async with Settler() as settler:
        settler.later(write)
        async with asyncio.timeout(5):
            while settler.waiting:
                await asyncio.sleep(0.01)
    assert tries == 3


async def test_a_write_refused_for_good_does_not_hold_up_the_next() -> None:
    done: list[str] = []

    async def refused() -> None:
        done.append("refused")
        raise AlreadyExists("there")

    async def fine() -> None:
        done.append("fine")

    async with Settler() as settler:
        settler.later(refused)
        settler.later(fine)
        async with asyncio.timeout(5):
            while settler.waiting:
                await asyncio.sleep(0.01)
    assert done == ["refused", "fine"]


async def test_what_waits_at_the_end_is_tried_once_more() -> None:
    done: list[str] = []

    async def write() -> None:
        done.append("written")

    settler = Settler()
    async with settler:
        settler.later(write)
    assert done == ["written"]


async def test_the_list_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_WAITING", 2)

    async def never() -> None:
        raise StoreUnavailable("not_committed")

    settler = Settler()
    for _ in range(5):
        settler.later(never)
    assert settler.waiting == 2


async def test_work_that_is_watched_ends_with_the_settler() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async with Settler() as settler:
        settler.watch(work())
        await asyncio.sleep(0)
    assert ended.is_set()
