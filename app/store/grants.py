"""Grant profiles with their sealed boxes, and the public keys of their tokens. What is in a box, nobody here can tell.

A key is published while a profile has it, and after that as long as a token signed with it can be valid: the profile's
lifetime of tokens from the moment it went, at most a day, and `SLACK_MS` for runs that were admitted before and get their lease
after, and for clocks that differ.

A profile is read for callers only by way of `grant_callers`: somebody else's costs what one costs that is not there, however
large it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from app.store.database import Database
from app.store.schema import audit, grant_callers, grants, retired_keys
from app.store.values import AuditRow, StoredGrant, TooMuch
from plimsoll.contract import codec
from plimsoll.contract.profiles import LIFETIME_CEILING_S, CredentialTerms, CredentialType, Profile

T = TypeVar("T")

SLACK_MS: Final = 300_000
PROFILES: Final = 1_000
RETIRED: Final = 1_000
"""Of more, those that end first are not published."""
SHOWN_CHARACTERS: Final = 32 << 20
"""What all profiles together may show to callers."""
_SHOWN = ("description", "catalog", "preamble")
_TEXTS = (*_SHOWN, "advice", "public_key")
_SELECT = sa.select(
    grants.c.name,
    grants.c.profile,
    grants.c.sealed,
    *(grants.c[name] for name in _TEXTS),
    grants.c.updated_unix_ms,
)
_ALLOWED = sa.select(grant_callers.c.profile).where(grant_callers.c.caller == sa.bindparam("caller"))
_ONE = _SELECT.where(
    grants.c.name == _ALLOWED.where(grant_callers.c.profile == sa.bindparam("name")).scalar_subquery()
)
_USABLE = _SELECT.where(grants.c.name.in_(_ALLOWED)).order_by(grants.c.name)
_ALL = _SELECT.order_by(grants.c.name)
_GOING = sa.select(grants.c.profile, grants.c.public_key).where(grants.c.name == sa.bindparam("name"))
_KEYS = sa.select(grants.c.public_key).where(grants.c.public_key != "").limit(PROFILES)
_RETIRED = (
    sa.select(retired_keys.c.public_key)
    .where(retired_keys.c.until_unix_ms > sa.bindparam("now"))
    .order_by(retired_keys.c.until_unix_ms.desc())
    .limit(RETIRED)
)
_SIZE = sa.select(
    sa.func.count(), *(sa.func.coalesce(sa.func.sum(sa.func.length(grants.c[name])), 0) for name in _SHOWN)
)


class Grants:
    """The repository of grant profiles. Every change writes its line of the audit trail in the same commit."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        """Rows live in `database`; `clock` gives Unix milliseconds."""
        self._database = database
        self._clock = clock

    async def get(self, name: str, caller: str) -> StoredGrant | None:
        """The profile of that name, for the caller of that name; None alike where there is none and where it is not theirs."""
        rows = await self._database.fetch(_ONE, {"name": name, "caller": caller})
        return _permitting(_stored(rows[0]), caller) if rows else None

    async def usable(self, caller: str) -> list[StoredGrant]:
        """Every profile that the caller of that name may use, by name."""
        rows = await self._database.fetch(_USABLE, {"caller": caller}, many=True)
        return [found for row in rows if (found := _permitting(_stored(row), caller))]

    async def all(self) -> list[StoredGrant]:
        """Every profile, by name."""
        return [_stored(row) for row in await self._database.fetch(_ALL, many=True)]

    async def keys(self) -> list[str]:
        """The public keys that valid tokens can be of, as they are stored; some may be there twice."""
        current = await self._database.fetch(_KEYS, many=True)
        retired = await self._database.fetch(_RETIRED, {"now": self._clock()}, many=True)
        return [row[0] for row in (*current, *retired)]

    async def apply(self, given: Sequence[StoredGrant]) -> None:
        """Add these profiles, or put them in the place of those of the same names: all or none. Raises TooMuch."""
        now = self._clock()

        def unit(connection: sa.Connection) -> None:
            for grant in given:
                _retire(connection, grant.profile.name, now)
                _put(connection, grant, now)
            _check_size(connection)

        await self._database.write(unit)

    async def remove(self, name: str) -> bool:
        """Forget a profile; False when there is none. A run that has its lease already keeps it to its end."""
        now = self._clock()

        def unit(connection: sa.Connection) -> bool:
            _retire(connection, name, now)
            gone = connection.execute(sa.delete(grants).where(grants.c.name == name)).rowcount == 1
            _allow(connection, name, ())
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
    _allow(connection, grant.profile.name, grant.profile.allowed_callers)
    _trail(connection, now, "grant.applied", grant.profile.name)


def _allow(connection: sa.Connection, name: str, callers: Sequence[str]) -> None:
    """Let these callers use the profile, and nobody else."""
    connection.execute(sa.delete(grant_callers).where(grant_callers.c.profile == name))
    if callers:
        connection.execute(
            sa.insert(grant_callers), [{"profile": name, "caller": each} for each in sorted(set(callers))]
        )


def _permitting(grant: StoredGrant, caller: str) -> StoredGrant | None:
    """The profile, if it says itself what led to it: both are rows that somebody may have changed."""
    return grant if caller in grant.profile.allowed_callers else None


def _retire(connection: sa.Connection, name: str, now: int) -> None:
    """Keep the key of a profile that goes for as long as its tokens can be valid; one that is kept longer already stays so."""
    profile, key = connection.execute(_GOING, {"name": name}).one_or_none() or ("", "")
    if not key:
        return
    until = now + 1_000 * _lifetime_s(profile) + SLACK_MS
    here = retired_keys.c.public_key == key
    known = connection.execute(sa.select(retired_keys.c.until_unix_ms).where(here)).scalar()
    if known is None:
        connection.execute(sa.insert(retired_keys), {"public_key": key, "until_unix_ms": until})
    else:
        connection.execute(sa.update(retired_keys).where(here).values(until_unix_ms=max(known, until)))


def _lifetime_s(profile: str) -> int:
    """How long its tokens live at most; of a row that somebody else spoiled, as long as any may."""
    found = _read(Profile, profile)
    return LIFETIME_CEILING_S if found is None else min(found.credential.lifetime_s, LIFETIME_CEILING_S)


def _check_size(connection: sa.Connection) -> None:
    count, *sizes = connection.execute(_SIZE).one()
    if count > PROFILES:
        raise TooMuch(f"there may be {PROFILES} profiles: remove some first")
    if sum(sizes) > SHOWN_CHARACTERS:
        raise TooMuch(
            f"all profiles together may have {SHOWN_CHARACTERS} characters of description, catalog and preamble"
        )


def _trail(connection: sa.Connection, now: int, event: str, name: str) -> None:
    connection.execute(sa.insert(audit).inline(), asdict(AuditRow(now, event, "", reason=name)))


def _stored(row: Sequence[Any]) -> StoredGrant:
    """Of a row that somebody else wrote, the profile may be anything: its rules are for the broker to look at again.

    One that cannot be read is of nobody and nowhere, so that it hides no other profile.
    """
    name, profile, sealed, *texts = row
    stored = StoredGrant(_read(Profile, profile) or _unreadable(name), bytes(sealed), *texts)
    return stored if _read(dict[str, str], stored.preamble) is not None else replace(stored, preamble="{}")


def _read(shape: type[T], text: str) -> T | None:
    try:
        return codec.loads(shape, text.encode())
    except ValueError:
        return None


def _unreadable(name: str) -> Profile:
    return Profile(name, "", (), (), CredentialTerms(CredentialType.STATIC))
