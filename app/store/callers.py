"""Callers and their tokens. A name belongs to one caller for ever; of a token the database has its SHA-256 alone.

Nothing is cached: every request reads its token's row, so what another process revokes is refused from the next request on.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa

from app.identity import Caller, Scope
from app.store.database import Database
from app.store.schema import audit, caller_tokens, callers
from app.store.values import AuditRow, CallerToken, NewCaller, StoredCaller, UnknownCaller

Faults = list[tuple[int, str]]
"""Position in what was given, and the rule that was broken."""

_AUTHENTICATE = (
    sa.select(callers.c.id, callers.c.name, callers.c.scopes)
    .select_from(caller_tokens.join(callers))
    .where(
        caller_tokens.c.sha256 == sa.bindparam("sha256"),
        # Revoking deletes the tokens; this also stops one that a rotation adds at the same moment.
        callers.c.revoked_unix_ms.is_(None),
        sa.or_(
            caller_tokens.c.expires_unix_ms.is_(None),
            caller_tokens.c.expires_unix_ms > sa.bindparam("now", type_=sa.BigInteger),
        ),
    )
)
_ANY = sa.select(callers.c.id).where(callers.c.revoked_unix_ms.is_(None)).limit(1)
_ALL = (
    sa.select(*callers.c, caller_tokens.c.sha256, caller_tokens.c.expires_unix_ms)
    .select_from(callers.outerjoin(caller_tokens))
    .order_by(callers.c.name, caller_tokens.c.created_unix_ms, caller_tokens.c.sha256)
)


class Callers:
    """The repository of callers. Every change writes its line of the audit trail in the same commit."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        """Rows live in `database`; `clock` gives Unix milliseconds."""
        self._database = database
        self._clock = clock

    async def authenticate(self, token_sha256: str, now_unix_ms: int) -> Caller | None:
        """Who holds this token now; None for an unknown, expired or revoked one."""
        asked = {"sha256": token_sha256, "now": now_unix_ms}
        rows = await self._database.fetch(_AUTHENTICATE, asked, brief=True)
        return Caller(rows[0][0], rows[0][1], _scopes(rows[0][2])) if rows else None

    async def any_exist(self) -> bool:
        """Whether there is a caller that was not revoked."""
        return bool(await self._database.fetch(_ANY))

    async def all(self) -> list[StoredCaller]:
        """Every caller by name, revoked ones included."""
        found: dict[str, StoredCaller] = {}
        for row in await self._database.fetch(_ALL, many=True):
            caller = found.setdefault(row[0], StoredCaller(row[0], row[1], _scopes(row[2]), row[3], row[4]))
            if row[5] is not None:
                token = CallerToken(row[5], row[6])
                found[caller.id] = replace(caller, tokens=(*caller.tokens, token))
        return list(found.values())

    async def create(self, caller: NewCaller) -> None:
        """Add a caller with its first tokens. Raises AlreadyExists when its name or id was ever used, or a token is."""
        now = self._clock()
        await self._database.write(lambda connection: _add(connection, caller, now, "caller.created"))

    async def import_(self, new: Sequence[NewCaller]) -> Faults:
        """Add all of them and return no fault, or none of them and every fault. Raises AlreadyExists in a race."""
        now = self._clock()

        def unit(connection: sa.Connection) -> Faults:
            faults = _taken(connection, new)
            for caller in () if faults else new:
                _add(connection, caller, now, "caller.imported")
            return faults

        return await self._database.write(unit)

    async def rotate(self, name: str, token: CallerToken, overlap_ms: int) -> None:
        """Give the caller a new token; its others end after `overlap_ms` unless they end before. Raises UnknownCaller."""
        now = self._clock()
        await self._database.write(lambda connection: _rotate(connection, name, token, now, now + overlap_ms))

    async def revoke(self, name: str) -> None:
        """End the caller and all its tokens for good, from the next request on. Raises UnknownCaller."""
        now = self._clock()
        await self._database.write(lambda connection: _revoke(connection, name, now))


def _add(connection: sa.Connection, caller: NewCaller, now: int, event: str) -> None:
    row = {"id": caller.id, "name": caller.name, "scopes": " ".join(sorted(caller.scopes))}
    times = {"created_unix_ms": now, "revoked_unix_ms": caller.revoked_unix_ms}
    connection.execute(sa.insert(callers), row | times)
    for token in caller.tokens:
        _add_token(connection, caller.id, token, now)
    _trail(connection, now, event, caller.id)


def _add_token(connection: sa.Connection, caller_id: str, token: CallerToken, now: int) -> None:
    row = {"sha256": token.sha256, "caller_id": caller_id, "created_unix_ms": now}
    connection.execute(sa.insert(caller_tokens), row | {"expires_unix_ms": token.expires_unix_ms})


def _rotate(connection: sa.Connection, name: str, token: CallerToken, now: int, ends: int) -> None:
    caller_id = _active(connection, name)
    expires = caller_tokens.c.expires_unix_ms
    lasting = sa.or_(expires.is_(None), expires > ends)
    shorten = sa.update(caller_tokens).where(caller_tokens.c.caller_id == caller_id, lasting)
    connection.execute(shorten.values(expires_unix_ms=ends))
    _add_token(connection, caller_id, token, now)
    _trail(connection, now, "caller.rotated", caller_id)


def _revoke(connection: sa.Connection, name: str, now: int) -> None:
    caller_id = _active(connection, name)
    connection.execute(sa.update(callers).where(callers.c.id == caller_id).values(revoked_unix_ms=now))
    connection.execute(sa.delete(caller_tokens).where(caller_tokens.c.caller_id == caller_id))
    _trail(connection, now, "caller.revoked", caller_id)


def _active(connection: sa.Connection, name: str) -> str:
    query = sa.select(callers.c.id).where(callers.c.name == name, callers.c.revoked_unix_ms.is_(None))
    caller_id: str | None = connection.execute(query).scalar()
    if caller_id is None:
        raise UnknownCaller("no caller has this name, or it was revoked")
    return caller_id


def _taken(connection: sa.Connection, new: Sequence[NewCaller]) -> Faults:
    """What of `new` is in the database already."""
    faults: Faults = []
    for position, caller in enumerate(new):
        if _has(connection, callers.c.name, caller.name):
            faults.append((position, "name: was used before"))
        if _has(connection, callers.c.id, caller.id):
            faults.append((position, "id: was used before"))
        if any(_has(connection, caller_tokens.c.sha256, token.sha256) for token in caller.tokens):
            faults.append((position, "tokens: belongs to a caller already"))
    return faults


def _has(connection: sa.Connection, column: sa.Column[Any], value: str) -> bool:
    return connection.execute(sa.select(column).where(column == value)).first() is not None


def _trail(connection: sa.Connection, now: int, event: str, caller_id: str) -> None:
    connection.execute(sa.insert(audit).inline(), asdict(AuditRow(now, event, caller_id)))


def _scopes(text: str) -> frozenset[Scope]:
    return frozenset(map(Scope, text.split()))
