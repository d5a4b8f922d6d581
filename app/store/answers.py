"""Kept answers: the keys they are found by and the bytes they take. Parts of units of work, for runs that keep an answer.

Bytes are counted as they change, never summed up. Rows are locked in one order, which is what keeps Postgres from deadlocks:
the run, its answer, callers' counts by their ids, and last the total, which every other writer of answers waits for.
"""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from app.store.schema import answers, runs
from app.store.values import Keep, KeyTaken, QuotaExceeded, State

TOTAL = ""
"""The scope of the sum over all callers; no caller has this id."""


def _counting(text: str, *numbers: str) -> sa.TextClause:
    # Postgres would take a number for one of 32 bits.
    return sa.text(text).bindparams(*(sa.bindparam(name, type_=sa.BigInteger) for name in numbers))


_RESERVE = _counting(
    "INSERT INTO kept_bytes (scope, bytes) VALUES (:caller, :more), ('', :more)"
    " ON CONFLICT (scope) DO UPDATE SET bytes = kept_bytes.bytes + excluded.bytes"
    " WHERE kept_bytes.bytes + excluded.bytes <= CASE kept_bytes.scope WHEN '' THEN :total ELSE :quota END"
    " RETURNING scope",
    "more",
    "total",
    "quota",
)
_CHANGE = _counting("UPDATE kept_bytes SET bytes = bytes + :more WHERE scope = :scope", "more")
_ROW = ("run_id", "fingerprint", "expires_unix_ms", "reserved_bytes", "held_bytes")
_IS_THIS_KEY = (
    answers.c.caller_id == sa.bindparam("caller"),
    answers.c.key_sha256 == sa.bindparam("key"),
)
_MOVE = (
    sa.update(answers)
    .where(
        *_IS_THIS_KEY,
        answers.c.run_id == sa.bindparam("old"),
        sa.exists().where(
            runs.c.id == sa.bindparam("old"),
            runs.c.state == State.NOT_DISPATCHED.value,
            runs.c.settled == sa.true(),
        ),
    )
    .values({name: sa.bindparam(name) for name in _ROW})
)
_SHARE = (answers.c.caller_id, answers.c.held_bytes)
_EXPIRE = (
    sa.delete(answers)
    .where(*_IS_THIS_KEY, answers.c.expires_unix_ms <= sa.bindparam("now", type_=sa.BigInteger))
    .returning(*_SHARE)
)
_OF_RUN = sa.update(answers).where(answers.c.run_id == sa.bindparam("run"))
_STORE = (
    _OF_RUN.where(answers.c.reserved_bytes >= sa.bindparam("held_bytes"))
    .values(body=sa.bindparam("body"), held_bytes=sa.bindparam("held_bytes"))
    .returning(answers.c.caller_id, answers.c.reserved_bytes)
)


def hold(connection: sa.Connection, run_id: str, caller_id: str, keep: Keep, now_unix_ms: int) -> None:
    """Give the run its key and the bytes for its answer. Raises KeyTaken and QuotaExceeded."""
    row = {
        "run_id": run_id,
        "caller_id": caller_id,
        "key_sha256": keep.key and keep.key.sha256,
        "fingerprint": keep.key.fingerprint if keep.key else "",
        "expires_unix_ms": keep.expires_unix_ms,
        "reserved_bytes": keep.reserve_bytes,
        "held_bytes": keep.reserve_bytes,
    }
    if not (_move(connection, row, keep.replaces_run_id) or _insert(connection, row)):
        _forget(connection, _EXPIRE, _key_of(row) | {"now": now_unix_ms})
        if not _insert(connection, row):
            raise KeyTaken("another run holds this key")
    _reserve(connection, caller_id, keep)


def end(connection: sa.Connection, run_id: str, body: bytes | None) -> None:
    """Keep what the run answered, with the bytes it really has; without an answer give back what was reserved."""
    if body is not None:
        held = {"run": run_id, "body": body, "held_bytes": len(body)}
        if stored := connection.execute(_STORE, held).first():
            _count(connection, [(stored[0], len(body) - stored[1])])
            return
    release(connection, runs.c.id == run_id)


def release(connection: sa.Connection, which: sa.ColumnElement[bool]) -> None:
    """Give back what is reserved for these runs, which end without an answer. Only of runs that could still end."""
    # RETURNING knows new values only, hence the reservation: it is what was held until now.
    statement = (
        sa.update(answers).where(answers.c.run_id.in_(sa.select(runs.c.id).where(which))).values(held_bytes=0)
    )
    freed = connection.execute(statement.returning(answers.c.caller_id, answers.c.reserved_bytes))
    _count(connection, [(caller_id, -size) for caller_id, size in freed])


def forget(connection: sa.Connection, run_ids: list[str]) -> None:
    """Drop these answers with their keys and their bytes."""
    _forget(connection, sa.delete(answers).where(answers.c.run_id.in_(run_ids)).returning(*_SHARE))


def _forget(connection: sa.Connection, statement: sa.Executable, given: dict[str, Any] | None = None) -> None:
    freed = connection.execute(statement, given or {})
    _count(connection, [(caller_id, -size) for caller_id, size in freed])


def _move(connection: sa.Connection, row: dict[str, Any], old: str | None) -> bool:
    """Take the key from a run that was not dispatched: its bytes are given back already, and its state is final."""
    if old is None:
        return False
    new = {name: row[name] for name in _ROW}
    return connection.execute(_MOVE, new | _key_of(row) | {"old": old}).rowcount == 1


def _key_of(row: dict[str, Any]) -> dict[str, Any]:
    return {"caller": row["caller_id"], "key": row["key_sha256"]}


def _insert(connection: sa.Connection, row: dict[str, Any]) -> bool:
    return connection.execute(_inserting(connection.dialect.name), row).rowcount == 1


@cache
def _inserting(dialect: str) -> sa.Insert:
    insert = (postgresql.insert if dialect == "postgresql" else sqlite.insert)(answers)
    return insert.on_conflict_do_nothing(index_elements=["caller_id", "key_sha256"])


def _reserve(connection: sa.Connection, caller_id: str, keep: Keep) -> None:
    more, quota, total = keep.reserve_bytes, keep.caller_quota_bytes, keep.total_quota_bytes
    given = {"caller": caller_id, "more": more, "quota": quota, "total": total}
    # A first row meets no condition in the statement.
    fits = more <= min(quota, total)
    counted = set(connection.execute(_RESERVE, given).scalars()) if fits else set()
    if caller_id not in counted and (fits or more > quota):
        raise QuotaExceeded("caller")
    if TOTAL not in counted:
        raise QuotaExceeded("total")


def _count(connection: sa.Connection, changes: Iterable[tuple[str, int]]) -> None:
    sums: Counter[str] = Counter()
    for caller_id, more in changes:
        sums[caller_id] += more
        sums[TOTAL] += more
    rows = [{"scope": scope, "more": more} for scope, more in sums.items() if more]
    if rows:
        connection.execute(_CHANGE, sorted(rows, key=lambda row: (row["scope"] == TOTAL, row["scope"])))
