"""The statements of every run, compiled once.

On SQLite the driver runs them, as it runs reads: through Core a small row costs several times what SQLite takes for it, in the
one thread that all commits wait for. On Postgres Core runs the same statement.
"""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

_DIALECT = SQLiteDialect_pysqlite(paramstyle="named")


def compiled(statement: sa.Executable, names: Collection[str] | None = None) -> sa.Compiled:
    """The statement for SQLite's driver; an INSERT sets the columns in `names`."""
    return cast("sa.ClauseElement", statement).compile(
        dialect=_DIALECT, column_keys=None if names is None else list(names)
    )


class Hot:
    """One statement. Its parameters are plain values, given by name: numbers, texts, bytes, booleans, None."""

    def __init__(self, statement: sa.Executable, names: Collection[str] | None = None) -> None:
        """An INSERT sets the columns in `names`."""
        self._statement = statement
        self._text = compiled(statement, names).string

    def run(self, connection: sa.Connection, given: Mapping[str, Any]) -> Sequence[Any]:
        """As a part of a unit of work: the rows it returns, as tuples of database values."""
        if connection.dialect.name == "sqlite":
            driver = cast("sqlite3.Connection", connection.connection.driver_connection)
            return driver.execute(self._text, given).fetchall()
        result = connection.execute(self._statement, given)
        return result.all() if result.returns_rows else ()


def slots_of(value: Any) -> dict[str, Any]:
    """The fields of a flat dataclass with slots, as a row."""
    return {name: getattr(value, name) for name in value.__slots__}
