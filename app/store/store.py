"""The store as one owned thing: `async with open_store(url, clock=…) as store` and then its repositories."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa

from app.store import files, retention
from app.store.ballast import RELEASE_UNDER, Ballast, disk_of
from app.store.callers import Callers
from app.store.database import Database
from app.store.evidence import Evidence
from app.store.grants import Grants
from app.store.replicas import Replicas
from app.store.runs import Runs
from app.store.values import StoreUnusable

PRUNE_BATCH = 100
"""Small enough that a run waits a few milliseconds for it, not tens."""
SHRINK_PAGES = 256
"""A step of giving room back, likewise."""


class Shrinkable(Protocol):
    """What only a database in one file has: pages that hold nothing."""

    def unused_bytes(self) -> int: ...
    async def shrink(self, pages: int) -> int: ...


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """The file of a SQLite database."""

    path: Path
    database: Shrinkable


class Store:
    """The repositories over one database."""

    def __init__(
        self, database: Database, clock: Callable[[], int], file: SqliteFile | None, *, sole_owner: bool
    ) -> None:
        """Rows live in `database`, for SQLite in `file`; `clock` gives Unix milliseconds."""
        self._database = database
        self._clock = clock
        self._file = file
        self.ballast = Ballast(file.path) if file else None
        self.sole_owner = sole_owner
        """Whether nobody else serves from this database: then every open run at start is an orphan."""
        self.runs = Runs(database, clock)
        self.replicas = Replicas(database)
        self.callers = Callers(database, clock)
        self.evidence = Evidence(database, clock)
        self.grants = Grants(database, clock)

    async def prune(
        self, older_than_unix_ms: int, batch: int = PRUNE_BATCH, *, keep_evidence: Collection[str] = ()
    ) -> int:
        """Forget one bounded batch of what is older or has expired; how many rows went, 0 at the end. See `retention`."""
        now = self._clock()
        return await self._database.write(
            lambda connection: retention.prune(connection, older_than_unix_ms, now, batch, keep_evidence)
        )

    async def shrink(self) -> int:
        """Give one bounded step of a SQLite file's free pages back to the disk; how many went, 0 at the end."""
        return await self._file.database.shrink(SHRINK_PAGES) if self._file else 0

    def disk_bytes(self) -> int | None:
        """The size of the file system under a SQLite file; None for Postgres. Raises OSError."""
        return disk_of(self._file.path).size if self._file else None

    def free_fraction(self) -> float | None:
        """The share of the file system under a SQLite file that is room for runs: free, or free in the file's own pages.

        What is put aside as ballast is none. 0 where it cannot be told; None for Postgres.
        """
        if self._file is None:
            return None
        try:
            disk = disk_of(self._file.path)
        except OSError:
            return 0.0
        if (
            disk.free < RELEASE_UNDER * disk.size
        ):  # what is written goes through the log beside the file first
            return 0.0
        aside = self.ballast.missing_bytes(disk) if self.ballast else 0
        room = disk.free - aside + self._file.database.unused_bytes()
        return max(0.0, room / disk.size) if disk.size else 0.0


def open_store(
    database_url: str, *, clock: Callable[[], int], sole_owner: bool = True
) -> AbstractAsyncContextManager[Store]:
    """Own the database named by `sqlite+aiosqlite:///PATH` or `postgresql+asyncpg://…`, made or migrated if need be.

    With `sole_owner` a lock bars a second such store on a SQLite file. The admin command does without: it writes beside a
    living service. Raises StoreUnusable, before anything is served.
    """
    url = _parsed(database_url)
    if url.drivername == "sqlite+aiosqlite":
        return _sqlite(url, clock, sole_owner=sole_owner)
    if url.drivername == "postgresql+asyncpg":
        return _postgres(url, clock)
    raise StoreUnusable("the database URL must start with sqlite+aiosqlite:/// or postgresql+asyncpg://")


def other_owner(database_url: str) -> tuple[Path, int] | None:
    """See `files.other_owner`; None on Postgres, where the server knows who may do what. Raises StoreUnusable."""
    url = _parsed(database_url)
    if url.get_backend_name() != "sqlite":
        return None
    from app.store import sqlite  # noqa: PLC0415 - as below

    return files.other_owner(sqlite.path_of(url))


def _parsed(database_url: str) -> sa.URL:
    try:
        return sa.make_url(database_url)
    except (sa.exc.ArgumentError, ValueError):
        # The text of the error may hold the URL, and with it a password.
        raise StoreUnusable("the database URL is malformed") from None


@asynccontextmanager
async def _sqlite(url: sa.URL, clock: Callable[[], int], *, sole_owner: bool) -> AsyncIterator[Store]:
    from app.store import sqlite  # noqa: PLC0415 - each engine's driver is loaded only where it is used

    path = sqlite.path_of(url)
    files.prepare(path)
    with files.sole_owner(path) if sole_owner else nullcontext():
        await asyncio.to_thread(sqlite.bring_up, path, locked=sole_owner)
        async with sqlite.open_sqlite(path) as database:
            yield Store(database, clock, SqliteFile(path, database), sole_owner=sole_owner)


@asynccontextmanager
async def _postgres(url: sa.URL, clock: Callable[[], int]) -> AsyncIterator[Store]:
    from app.store import postgres  # noqa: PLC0415 - as above

    async with postgres.open_postgres(url) as database:
        yield Store(database, clock, None, sole_owner=False)
