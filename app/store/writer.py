"""The one writer of a SQLite file: a thread whose group commit never waits.

When it becomes free it takes what is queued, runs each unit of work under a savepoint of its own and commits them
together: one fsync for all, no timer, one hop between threads for a whole batch (docs/decisions says what that saves). A unit
that fails is rolled back alone. A commit that fails fails its whole batch, and says whether it can have happened.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import sqlalchemy as sa

from app.store.database import FAILURES, Unit, cause, failure
from app.store.values import Outcome, StoreUnavailable

T = TypeVar("T")

QUEUE = 8192
"""Units waiting at most: more than the dispatcher ever has in hand, so only a stuck disk fills it."""
BATCH = 256
"""Units in one commit at most, so that the first one queued does not wait for a thousand others."""


@dataclass(slots=True)
class _Item:
    unit: Unit[Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None


class GroupWriter:
    """Owns the thread and its connection; use as an async context manager. All methods belong to the event loop's thread."""

    def __init__(self, connect: Callable[[], sa.Connection]) -> None:
        """`connect` is called in the writer's thread: at the first unit, and after a commit that failed."""
        self._connect = connect
        self._connection: sa.Connection | None = None
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="store-writer", daemon=True)
        self._waiting = 0
        self._closed = False
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish what is queued, close the connection, end the thread."""
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    async def write(self, unit: Unit[T]) -> T:
        """Run `unit` in the next commit. Queued is as good as begun: a cancelled asker does not take it back."""
        if self._closed or self._waiting >= QUEUE:
            raise StoreUnavailable("not_committed", "closed" if self._closed else "queue full")
        item = _Item(unit, self._loop.create_future())
        self._waiting += 1
        self._queue.put(item)
        result: T = await item.future
        return result

    def _delivered(self, batch: list[_Item]) -> None:
        self._waiting -= len(batch)
        for item in batch:
            if item.future.done():  # its asker was cancelled
                continue
            if item.error is None:
                item.future.set_result(item.result)
            else:
                item.future.set_exception(item.error)

    # From here on everything runs in the writer's thread.

    def _serve(self) -> None:
        stop = False
        while not stop:
            batch, stop = self._take()
            if batch:
                self._commit(batch)
                self._loop.call_soon_threadsafe(self._delivered, batch)
        self._disconnect()

    def _take(self) -> tuple[list[_Item], bool]:
        """What is queued now, at least one item, and whether it was the last."""
        batch: list[_Item] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) == BATCH or self._queue.empty():
                return batch, False
            item = self._queue.get()
        return batch, True

    def _commit(self, batch: list[_Item]) -> None:
        outcome: Outcome = "not_committed"
        try:
            connection, driver = self._connected()
            driver.execute("BEGIN IMMEDIATE")
            for item in batch:
                _run(item, connection, driver)
            # An error of COMMIT proves nothing: the frames may be on the disk although the flush was reported as failed.
            outcome = "unknown"
            driver.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever it is, every asker gets an answer and the thread lives on
            self._disconnect()
            for item in batch:
                item.error = StoreUnavailable(outcome, cause(error))

    def _connected(self) -> tuple[sa.Connection, sqlite3.Connection]:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection, cast("sqlite3.Connection", self._connection.connection.driver_connection)

    def _disconnect(self) -> None:
        """Closing rolls back whatever is open; the next unit gets a new connection."""
        if self._connection is not None:
            with suppress(sa.exc.SQLAlchemyError, sqlite3.Error):
                self._connection.close()
            self._connection = None


def _run(item: _Item, connection: sa.Connection, driver: sqlite3.Connection) -> None:
    """One unit under its savepoint. Raises when SQLite gave up the whole transaction: then there is none to go back to."""
    driver.execute("SAVEPOINT unit")
    try:
        item.result = item.unit(connection)
    except Exception as error:  # noqa: BLE001 - handed to the asker
        driver.execute("ROLLBACK TO unit")
        item.error = failure(error) if isinstance(error, FAILURES) else error
    driver.execute("RELEASE unit")
