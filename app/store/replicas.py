"""Replicas that share one database: each owns the runs it started for as long as its lease, by the database's clock.

The clocks of the replicas' machines decide nothing. A lease is counted from the start of the statement that renews it.
"""

from functools import cache

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from app.store.database import Database
from app.store.schema import replicas, runs

_NOW = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT)",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
}
_LEFT = 0
"""The lease of a replica that left: over for so long that nothing has to be waited for."""


class Replicas:
    """The repository of leases."""

    def __init__(self, database: Database) -> None:
        """Rows live in `database`."""
        self._database = database

    async def beat(self, replica_id: str, ttl_ms: int) -> None:
        """Own one's runs for `ttl_ms` from now. The first comes before the first run; the id is fresh for each process."""
        row = {"id": replica_id, "ttl": ttl_ms}
        await self._database.write(
            lambda connection: connection.execute(_lease(connection.dialect.name), row).rowcount
        )

    async def leave(self, replica_id: str) -> None:
        """Own nothing any more: what is still open will never be ended by this replica, and is final when adopted."""
        gone = sa.update(replicas).where(replicas.c.id == replica_id).values(lease_until_unix_ms=_LEFT)
        await self._database.write(lambda connection: connection.execute(gone).rowcount)


def now_at(connection: sa.Connection) -> sa.ColumnElement[int]:
    """Unix milliseconds by the database's clock."""
    return _now(connection.dialect.name)


def meet(connection: sa.Connection, own_id: str) -> None:
    """Give owners of open runs that never had a lease one that ends now, so that theirs too are orphans at first sight."""
    nobody = ~sa.exists().where(replicas.c.id == runs.c.owner)
    owners = (
        sa.select(runs.c.owner, now_at(connection) - 1)
        .where(runs.c.settled == sa.false(), runs.c.owner != own_id, nobody)
        .distinct()
    )
    columns = ["id", "lease_until_unix_ms"]
    statement = _insert(connection.dialect.name).from_select(columns, owners)
    connection.execute(statement.on_conflict_do_nothing())


def _now(dialect: str) -> sa.ColumnElement[int]:
    return sa.literal_column(_NOW[dialect], sa.BigInteger)


def _insert(dialect: str) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(replicas) if dialect == "postgresql" else sqlite.insert(replicas)


@cache
def _lease(dialect: str) -> sa.Insert:
    until = _now(dialect) + sa.bindparam("ttl", type_=sa.BigInteger)
    statement = _insert(dialect).values(id=sa.bindparam("id"), lease_until_unix_ms=until)
    excluded = statement.excluded.lease_until_unix_ms
    return statement.on_conflict_do_update(index_elements=["id"], set_={"lease_until_unix_ms": excluded})
