"""The group commit: what shares a commit, what fails alone, what a failed commit proves."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest
import sqlalchemy as sa

from app.store import writer
from app.store.sqlite import engine_for
from app.store.values import AlreadyExists, StoreUnavailable
from app.store.writer import GroupWriter


def insert(number: int) -> Callable[[sa.Connection], int]:
    def unit(connection: sa.Connection) -> int:
        connection.exec_driver_sql("INSERT INTO numbers VALUES (?)", (number,))
        return number

    return unit


def numbers(path: Path) -> list[int]:
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT number FROM numbers ORDER BY number").fetchall()
    connection.close()
    return [row[0] for row in rows]


def driver(connection: sa.Connection) -> sqlite3.Connection:
    return cast("sqlite3.Connection", connection.connection.driver_connection)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "numbers.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
        connection.execute("CREATE TABLE later (x REFERENCES numbers DEFERRABLE INITIALLY DEFERRED)")
    connection.close()
    return file


@pytest.fixture
async def group(path: Path) -> AsyncIterator[GroupWriter]:
    async with GroupWriter(engine_for(path).connect) as opened:
        yield opened


class Gate:
    """A unit that holds the writer until it is opened, so that a test decides what is queued together."""

    def __init__(self, group: GroupWriter) -> None:
        self._entered = threading.Event()
        self._open = threading.Event()
        self._task = asyncio.ensure_future(group.write(self._wait))

    def _wait(self, _connection: sa.Connection) -> None:
        self._entered.set()
        assert self._open.wait(10)

    async def __aenter__(self) -> None:
        await asyncio.to_thread(self._entered.wait, 10)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)
        self._open.set()
        await self._task


async def together(group: GroupWriter, *units: Callable[[sa.Connection], int]) -> list[int | BaseException]:
    """Run the units in one batch."""
    async with Gate(group):
        tasks = [asyncio.ensure_future(group.write(unit)) for unit in units]
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_is_queued_together_is_committed_together(group: GroupWriter, path: Path) -> None:
    changes: list[int] = []

    def count(connection: sa.Connection) -> int:
        changes.append(driver(connection).execute("PRAGMA data_version").fetchone()[0])
        assert numbers(path) == []
        return 0

    await together(group, insert(1), insert(2), count)
    assert len(changes) == 1
    assert numbers(path) == [1, 2]


async def test_an_item_that_fails_fails_alone(group: GroupWriter, path: Path) -> None:
    def broken(connection: sa.Connection) -> int:
        insert(3)(connection)
        raise ZeroDivisionError

    done = await together(group, insert(1), insert(1), broken, insert(2))
    assert done[0] == 1
    assert isinstance(done[1], AlreadyExists)
    assert isinstance(done[2], ZeroDivisionError)
    assert done[3] == 2
    assert numbers(path) == [1, 2]


async def test_a_commit_that_fails_fails_its_whole_batch_and_proves_nothing(
    group: GroupWriter, path: Path
) -> None:
    """A deferred reference is SQLite's own way to fail at COMMIT."""

    def dangling(connection: sa.Connection) -> int:
        connection.exec_driver_sql("INSERT INTO later VALUES (77)")
        return 0

    done = await together(group, insert(1), dangling, insert(2))
    assert [each.outcome for each in done if isinstance(each, StoreUnavailable)] == ["unknown"] * 3
    assert await group.write(insert(5)) == 5
    assert numbers(path) == [5]


async def test_a_locked_database_proves_that_nothing_was_committed(group: GroupWriter, path: Path) -> None:
    def be_impatient(connection: sa.Connection) -> int:
        connection.exec_driver_sql("PRAGMA busy_timeout = 1")
        return 0

    await group.write(be_impatient)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable) as raised:
            await group.write(insert(1))
        other.execute("ROLLBACK")
    other.close()
    assert raised.value.outcome == "not_committed"
    assert await group.write(insert(1)) == 1


async def test_a_transaction_that_the_database_gave_up_fails_its_whole_batch(
    group: GroupWriter, path: Path
) -> None:
    """On a full disk SQLite may end the transaction itself; then there is no savepoint to go back to."""

    def full(connection: sa.Connection) -> int:
        driver(connection).execute("ROLLBACK")
        raise sa.exc.OperationalError("", None, sqlite3.OperationalError("database or disk is full"))

    done = await together(group, insert(1), full, insert(2))
    assert all(isinstance(each, StoreUnavailable) and each.outcome == "not_committed" for each in done)
    assert await group.write(insert(3)) == 3
    assert numbers(path) == [3]


async def test_a_full_file_fails_the_item_and_loses_nothing_that_was_answered(
    group: GroupWriter, path: Path
) -> None:
    def fill(connection: sa.Connection) -> int:
        connection.exec_driver_sql("PRAGMA max_page_count = 3")
        connection.exec_driver_sql("CREATE TABLE large (x)")
        connection.exec_driver_sql("INSERT INTO large VALUES (zeroblob(1000000))")
        return 0

    assert await group.write(insert(1)) == 1
    with pytest.raises(StoreUnavailable) as raised:
        await group.write(fill)
    assert raised.value.outcome == "not_committed"
    assert await group.write(insert(2)) == 2
    assert numbers(path) == [1, 2]


async def test_a_cancelled_asker_does_not_take_its_unit_back(group: GroupWriter, path: Path) -> None:
    async with Gate(group):
        tasks = [asyncio.ensure_future(group.write(insert(number))) for number in (1, 2)]
        await asyncio.sleep(0)
        tasks[0].cancel()
    assert await tasks[1] == 2
    assert tasks[0].cancelled()
    assert numbers(path) == [1, 2]


async def test_the_queue_is_bounded(group: GroupWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "QUEUE", 3)
    async with Gate(group):
        tasks = [asyncio.ensure_future(group.write(insert(number))) for number in (1, 2)]
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable) as raised:
            await group.write(insert(3))
    assert raised.value.outcome == "not_committed"
    assert await asyncio.gather(*tasks) == [1, 2]
    assert await group.write(insert(3)) == 3


async def test_a_batch_is_bounded(group: GroupWriter, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BATCH", 2)
    seen: list[int] = []

    def look(_connection: sa.Connection) -> int:
        seen.extend(numbers(path))
        return 0

    await together(group, insert(1), insert(2), look)
    assert seen == [1, 2]


async def test_closing_finishes_what_is_queued(path: Path) -> None:
    async with GroupWriter(engine_for(path).connect) as group:
        tasks = [asyncio.ensure_future(group.write(insert(number))) for number in range(50)]
        await asyncio.sleep(0)
    assert await asyncio.gather(*tasks) == list(range(50))
    assert numbers(path) == list(range(50))


async def test_a_database_that_cannot_be_opened_is_tried_again(path: Path) -> None:
    engine = engine_for(path)
    tries = 0

    def connect() -> sa.Connection:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise OSError
        return engine.connect()

    async with GroupWriter(connect) as group:
        with pytest.raises(StoreUnavailable) as raised:
            await group.write(insert(1))
        assert raised.value.outcome == "not_committed"
        assert await group.write(insert(1)) == 1
