"""Grant profiles with their sealed boxes. What is in a box, nobody here can tell."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from app.store.database import Database
from app.store.schema import audit, grants
from app.store.values import AuditRow, StoredGrant
from plimsoll.contract import codec
from plimsoll.contract.profiles import Profile

_TEXTS = ("description", "catalog", "preamble", "advice")
_SELECT = sa.select(
    grants.c.profile,
    grants.c.sealed,
    *(grants.c[name] for name in _TEXTS),
    grants.c.updated_unix_ms,
)
_ONE = _SELECT.where(grants.c.name == sa.bindparam("name"))
_ALL = _SELECT.order_by(grants.c.name)


class Grants:
    """The repository of grant profiles. Every change writes its line of the audit trail in the same commit."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        """Rows live in `database`; `clock` gives Unix milliseconds."""
        self._database = database
        self._clock = clock

    async def get(self, name: str) -> StoredGrant | None:
        """The profile of that name."""
        rows = await self._database.fetch(_ONE, {"name": name})
        return _stored(rows[0]) if rows else None

    async def all(self) -> list[StoredGrant]:
        """Every profile, by name."""
        return [_stored(row) for row in await self._database.fetch(_ALL, many=True)]

    async def apply(self, given: Sequence[StoredGrant]) -> None:
        """Add these profiles, or put them in the place of those of the same names: all or none."""
        now = self._clock()

        def unit(connection: sa.Connection) -> None:
            for grant in given:
                _put(connection, grant, now)

        await self._database.write(unit)

    async def remove(self, name: str) -> bool:
        """Forget a profile; False when there is none. A run that has its lease already keeps it to its end."""
        now = self._clock()

        def unit(connection: sa.Connection) -> bool:
            gone = connection.execute(sa.delete(grants).where(grants.c.name == name)).rowcount == 1
            if gone:
                _trail(connection, now, "grant.removed", name)
            return gone

        return await self._database.write(unit)


def _put(connection: sa.Connection, grant: StoredGrant, now: int) -> None:
    row: dict[str, Any] = {name: getattr(grant, name) for name in _TEXTS}
    row |= {"profile": codec.dumps(grant.profile).decode(), "sealed": grant.sealed, "updated_unix_ms": now}
    here = grants.c.name == grant.profile.name
    if connection.execute(sa.update(grants).where(here).values(row)).rowcount == 0:
        connection.execute(sa.insert(grants), row | {"name": grant.profile.name, "created_unix_ms": now})
    _trail(connection, now, "grant.applied", grant.profile.name)


def _trail(connection: sa.Connection, now: int, event: str, name: str) -> None:
    connection.execute(sa.insert(audit).inline(), asdict(AuditRow(now, event, "", reason=name)))


def _stored(row: Sequence[Any]) -> StoredGrant:
    """Of a row that somebody else wrote, the profile may be anything: its rules are for the broker to look at again."""
    return StoredGrant(codec.loads(Profile, row[0].encode()), bytes(row[1]), *row[2:])
