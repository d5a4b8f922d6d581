"""Postgres: one database for many machines. Every unit of work is a transaction of its own, from a pool."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from app.store import revision
from app.store.database import FAILURES, Unit, cause, failure
from app.store.values import Outcome, StoreUnavailable, StoreUnusable
from migrations import HEAD

T = TypeVar("T")

POOL = 16
CONNECT_S = 5
POOL_WAIT_S = 10
STATEMENT_S = 10
_MIGRATING = 0x706C696D736F6C6C
"""Key of the advisory lock: the first eight letters of our name."""
_FAILURES = (*FAILURES, asyncpg.PostgresError, asyncpg.InterfaceError)
"""Core passes on as they are what asyncpg raises while it connects."""


def engine_for(url: sa.URL) -> AsyncEngine:
    """A pool whose sessions commit to disk before they answer, whatever the server's default is."""
    return create_async_engine(
        url,
        hide_parameters=True,
        pool_size=POOL,
        max_overflow=0,
        pool_timeout=POOL_WAIT_S,
        connect_args={
            "timeout": CONNECT_S,
            "command_timeout": STATEMENT_S,
            "server_settings": {"synchronous_commit": "on", "application_name": "plimsoll"},
        },
    )


class PostgresDatabase:
    """The `Database` over a pool."""

    def __init__(self, engine: AsyncEngine) -> None:
        """`engine` is owned by the caller."""
        self._engine = engine
        self._reads = engine.execution_options(isolation_level="AUTOCOMMIT")

    async def write(self, unit: Unit[T]) -> T:
        """As `Database.write`. A pooled connection that turns out dead is replaced once, before anything was committed."""
        try:
            return await self._attempt(unit)
        except _Stale:
            return await self._attempt(unit, last=True)

    async def fetch(
        self,
        statement: sa.Select[Any],
        parameters: dict[str, Any] | None = None,
        *,
        many: bool = False,  # noqa: ARG002 - the pool needs no hint
        brief: bool = False,  # noqa: ARG002 - as above
    ) -> Sequence[Any]:
        """As `Database.fetch`. A read is safe to repeat, so it too survives one dead connection."""
        for last in (False, True):
            try:
                async with self._reads.connect() as connection:
                    rows: Sequence[Any] = (await connection.execute(statement, parameters)).all()
                    return rows
            except _FAILURES as error:
                if last or not _is_stale(error):
                    raise StoreUnavailable("not_committed", cause(error)) from None
        raise AssertionError  # pragma: no cover - the loop answers or raises

    async def _attempt(self, unit: Unit[T], *, last: bool = False) -> T:
        outcome: Outcome = "not_committed"
        try:
            async with self._engine.connect() as connection:
                result = await connection.run_sync(unit)
                outcome = "unknown"
                await connection.commit()
                return result
        except _FAILURES as error:
            if outcome == "not_committed" and not last and _is_stale(error):
                raise _Stale from None
            if outcome == "not_committed":
                raise failure(error) from None
            raise StoreUnavailable(outcome, cause(error)) from None


class _Stale(Exception):
    """The server ended this connection before the transaction: a fact about the pool, not about the unit."""


def _is_stale(error: BaseException) -> bool:
    return isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated


@asynccontextmanager
async def open_postgres(url: sa.URL) -> AsyncIterator[PostgresDatabase]:
    """Own the pool, and bring the schema to this version first. Raises StoreUnusable."""
    engine = engine_for(url)
    try:
        await _bring_up(engine)
        yield PostgresDatabase(engine)
    finally:
        await engine.dispose()


async def _bring_up(engine: AsyncEngine) -> None:
    try:
        async with engine.begin() as connection:
            # Replicas that start together migrate one after the other; the lock ends with the transaction.
            await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATING)))
            await connection.run_sync(_to_head)
    except _FAILURES as error:
        raise StoreUnusable(f"the database cannot be opened ({cause(error)})") from None
    except TypeError:
        # Each part of the URL's query is an argument of the driver's connect function.
        raise StoreUnusable(
            "the database URL has an option that asyncpg does not know (TLS is ssl=verify-full, not sslmode)"
        ) from None


def _to_head(connection: sa.Connection) -> None:
    current = revision.current_revision(connection)
    if current != HEAD:
        revision.upgrade(connection, current)
