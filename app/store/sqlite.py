"""SQLite: one file on this machine. Writes go through the one writer, reads through connections of their own.

A read is one statement and one hop to the thread that `aiosqlite` keeps for its connection. Reading through Core's asyncio
layer would cost several hops, ten times as much; so Core compiles the statement, once, and the driver runs it.

Authentication, which every request pays for, does without the hop: one look-up in pages that are always in memory takes some
tens of microseconds, and in WAL mode no writer keeps a reader waiting. Where that read cannot be had at once, the thread waits.
"""

import logging
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import aiosqlite
import sqlalchemy as sa

from app.log import event, logger
from app.store import files, hot, revision
from app.store.database import FAILURES, Unit, cause
from app.store.values import StoreUnavailable, StoreUnusable
from app.store.writer import GroupWriter
from migrations import HEAD

T = TypeVar("T")

BUSY_TIMEOUT_MS = 5_000
"""How long to wait for another process's short transaction (the admin command's)."""
_INCREMENTAL: Final = 2
_SHRINKABLE: Final = "PRAGMA auto_vacuum = INCREMENTAL"
"""Heeded in a file that has no page yet, and by the next VACUUM of this connection."""


def path_of(url: sa.URL) -> Path:
    """The file named by `sqlite+aiosqlite:///PATH`. Raises StoreUnusable for a database that is no file."""
    if not url.database or url.database == ":memory:" or url.database.startswith("file:") or url.query:
        raise StoreUnusable("the database URL must name a file: sqlite+aiosqlite:////absolute/path")
    return Path(url.database)


def engine_for(path: Path) -> sa.Engine:
    """A Core engine whose connections have the durability we promise. Transactions are begun by hand (BEGIN IMMEDIATE)."""
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        poolclass=sa.NullPool,
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,
    )
    sa.event.listen(engine, "connect", _configure)
    return engine


def _configure(driver: sqlite3.Connection, _record: object) -> None:
    driver.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    # Of a new file only, before anything is written: later it would change nothing and yet be a commit for each connection,
    # which a full disk refuses, so that the writer could not be back before there is room.
    if driver.execute("PRAGMA page_count").fetchone() == (0,):
        driver.execute(_SHRINKABLE)
    (mode,) = driver.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreUnusable("the database's file system does not support SQLite's write-ahead log")
    driver.execute("PRAGMA synchronous = FULL")
    driver.execute("PRAGMA foreign_keys = ON")


class SqliteDatabase:
    """The `Database` over one file."""

    def __init__(
        self,
        writer: GroupWriter,
        quick: aiosqlite.Connection,
        pages: aiosqlite.Connection,
        here: sqlite3.Connection,
    ) -> None:
        """`quick` serves reads of one row by key, `pages` all others, so that a long read delays no short one.

        `here` belongs to the event loop's thread, and never waits.
        """
        self._writer, self._quick, self._pages, self._here = writer, quick, pages, here
        self._shrunk = False
        """Whether pages went since the last checkpoint for them."""

    def unused_bytes(self) -> int:
        """Room in the file's own free pages; 0 where that cannot be read at once."""
        try:
            (pages,) = self._here.execute("PRAGMA freelist_count").fetchone()
            (size,) = self._here.execute("PRAGMA page_size").fetchone()
        except sqlite3.Error:
            return 0
        return int(pages) * int(size)

    async def shrink(self, pages: int) -> int:
        """Give at most so many free pages back to the file system; how many went. Raises StoreUnavailable."""
        went = await self.write(lambda connection: _shrink(connection, pages))
        if went:
            self._shrunk = True
        elif self._shrunk:
            # Only a checkpoint cuts the file. This one waits for nobody, and leaves the log its room.
            self._shrunk = False
            with suppress(sqlite3.Error, ValueError):
                await self._pages.execute_fetchall("PRAGMA wal_checkpoint(PASSIVE)")
        return went

    async def write(self, unit: Unit[T]) -> T:
        """As `Database.write`; all units of one moment share a commit."""
        return await self._writer.write(unit)

    async def fetch(
        self,
        statement: sa.Select[Any],
        parameters: dict[str, Any] | None = None,
        *,
        many: bool = False,
        brief: bool = False,
    ) -> Sequence[Any]:
        """As `Database.fetch`."""
        compiled = _compiled(statement)
        if brief:
            with suppress(sqlite3.Error):  # busy or broken: the thread below waits, or says so
                return self._here.execute(compiled.string, parameters or {}).fetchall()
        connection = self._pages if many else self._quick
        try:
            return list(
                await connection.execute_fetchall(compiled.string, compiled.construct_params(parameters))
            )
        except (sqlite3.Error, ValueError) as error:  # aiosqlite says ValueError once it is closed
            raise StoreUnavailable("not_committed", type(error).__name__) from None


@lru_cache(maxsize=64)
def _compiled(statement: sa.Select[Any]) -> sa.Compiled:
    """Statements are built once and kept by their repositories, so identity is the key."""
    return hot.compiled(statement)


def _shrink(connection: sa.Connection, pages: int) -> int:
    def free() -> int:
        return int(connection.exec_driver_sql("PRAGMA freelist_count").scalar_one())

    before = free()
    driver = cast("sqlite3.Connection", connection.connection.driver_connection)
    driver.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
    return before - free()


def bring_up(path: Path, *, locked: bool) -> None:
    """Make or migrate the schema, and if `locked` write a file anew that cannot shrink.

    Raises StoreUnusable, also when the schema must change under a living service (not `locked`).
    """
    try:
        with engine_for(path).connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            current = revision.current_revision(connection)
            if current is None:
                revision.create(connection)
            elif current != HEAD:
                with nullcontext() if locked else files.sole_owner(path):
                    revision.upgrade(connection, current)
            connection.exec_driver_sql("COMMIT")
            if locked:
                _make_shrinkable(connection, path)
    except (*FAILURES, sqlite3.Error) as error:
        raise StoreUnusable(f"{path} cannot be opened as a database ({cause(error)})") from None
    files.check_files(path)


def _make_shrinkable(connection: sa.Connection, path: Path) -> None:
    """A file of before 0004 keeps every page it ever had until it is written anew; without room for that it stays so."""
    if connection.exec_driver_sql("PRAGMA auto_vacuum").scalar_one() == _INCREMENTAL:
        return
    try:
        connection.exec_driver_sql(_SHRINKABLE)
        connection.exec_driver_sql("VACUUM")
    except FAILURES as error:
        event(logger, "database.not_shrinkable", level=logging.WARNING, cause=cause(error))
        return
    event(logger, "database.made_over", bytes=path.stat().st_size)


@asynccontextmanager
async def open_sqlite(path: Path) -> AsyncIterator[SqliteDatabase]:
    """Own the writer and the readers of a file that is there and has the present schema."""
    engine = engine_for(path)
    async with GroupWriter(engine.connect) as writer, _reader(path) as quick, _reader(path) as pages:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as here:
            here.execute("PRAGMA query_only = ON")
            yield SqliteDatabase(writer, quick, pages, here)


@asynccontextmanager
async def _reader(path: Path) -> AsyncIterator[aiosqlite.Connection]:
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        await connection.execute_fetchall(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        await connection.execute_fetchall("PRAGMA query_only = ON")
        yield connection
