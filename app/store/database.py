"""What a database offers the repositories: atomic units of work, and single reads. Two implementations, one per engine.

A unit of work is a plain function over a Core connection, so that one text serves the writer thread of SQLite and the
pool of Postgres. It must be safe to run again when nothing of its first try was committed.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from app.store.values import AlreadyExists, StoreError, StoreUnavailable

T = TypeVar("T")

Unit = Callable[[sa.Connection], T]

FAILURES = (sa.exc.SQLAlchemyError, sqlite3.Error, OSError, TimeoutError)
"""What a failing database raises, through Core or by the driver; anything else is a fault of ours and passes as it is."""


class Database(Protocol):
    """One engine. `write` is durable when it returns; `fetch` sees every write that has returned."""

    async def write(self, unit: Unit[T]) -> T:
        """Run `unit` in one transaction. Raises StoreUnavailable, AlreadyExists and what `unit` raises.

        An asker that is cancelled does not know what became of it, as with the outcome `unknown`.
        """
        ...

    async def fetch(
        self,
        statement: sa.Select[Any],
        parameters: dict[str, Any] | None = None,
        *,
        many: bool = False,
        brief: bool = False,
    ) -> Sequence[Any]:
        """All rows of one query, as tuples of database values (a boolean may be 0 or 1). Raises StoreUnavailable.

        `many` says that the query may be long, so that reads by key need not wait for it. `brief` says that it is one look-up
        by key in a small table that every request reads: where the database is a file it may be done at once, on this thread.
        """
        ...


def failure(error: Exception) -> StoreError:
    """The exception to let out for a database's, raised inside a unit of work before any commit was sent.

    It names types only. A driver's text may hold row values (Postgres puts the duplicate key into it).
    """
    if isinstance(error, sa.exc.IntegrityError | sqlite3.IntegrityError):
        return AlreadyExists(f"a row with this key is there already ({cause(error)})")
    return StoreUnavailable("not_committed", cause(error))


def cause(error: BaseException) -> str:
    """The name of the driver's exception inside a Core one, or of the error itself, and SQLite's name of what went wrong."""
    original = getattr(error, "orig", None)
    failed = error if original is None else original
    code: str = getattr(failed, "sqlite_errorname", "")
    return f"{type(failed).__name__} {code}".rstrip()
