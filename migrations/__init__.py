"""Alembic migrations of the service's database, usable from an installed package and without a configuration file.

A revision is never edited once released; the next change is a new file in `versions/`, with `HEAD` moved to it.
"""

from importlib import resources
from typing import TYPE_CHECKING

from sqlalchemy import Connection

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0005"
"""The newest revision. Known here so that a start on an up-to-date database need not import Alembic (a test compares)."""


class UnknownRevision(Exception):
    """The database is at a revision this version does not have: it was made by a newer one."""


def upgrade_to_head(connection: Connection, current: str | None) -> None:
    """Apply what came after revision `current` (None: everything), inside the caller's transaction. Raises UnknownRevision."""
    # Alembic costs more to import than the rest of a start, and nearly every start has nothing to apply.
    from alembic import command  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = configuration(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        raise UnknownRevision
    command.upgrade(config, "head")


def configuration(connection: Connection) -> "Config":
    """Alembic's configuration for one open connection."""
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    # Config files give `%` a meaning, folder names do not.
    config.set_main_option("script_location", str(resources.files("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
