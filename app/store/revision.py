"""Brings a database to the schema of this version, or says why it cannot be."""

import sqlalchemy as sa

from app.store.schema import metadata
from app.store.values import StoreUnusable
from migrations import HEAD, UnknownRevision, upgrade_to_head

_VERSION = sa.table("alembic_version", sa.column("version_num", sa.String))


def current_revision(connection: sa.Connection) -> str | None:
    """The revision the database is stamped with, None for an empty one. Raises StoreUnusable for a foreign one."""
    tables = set(sa.inspect(connection).get_table_names())
    if "alembic_version" in tables:
        return connection.execute(sa.select(_VERSION.c.version_num)).scalar()
    if tables:
        raise StoreUnusable("the database holds tables of something else; give this service one of its own")
    return None


def create(connection: sa.Connection) -> None:
    """Make today's tables in an empty database and stamp it, as Alembic would, in a fraction of the time."""
    metadata.create_all(connection, checkfirst=False)
    # The text is Alembic's own, so that a later upgrade finds the table it expects.
    connection.exec_driver_sql(
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
        "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
    )
    connection.execute(sa.insert(_VERSION).values(version_num=HEAD))


def upgrade(connection: sa.Connection, current: str | None) -> None:
    """Apply the migrations after `current`. Raises StoreUnusable for a database of a newer version."""
    try:
        upgrade_to_head(connection, current)
    except UnknownRevision:
        raise StoreUnusable(
            "the database was made by a newer version of this service: start that version, or restore a backup"
        ) from None
