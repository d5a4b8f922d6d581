"""Retention: every table but `callers` forgets. Names of callers are never given twice, so their rows stay."""

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from app.store import answers
from app.store import stored as counts
from app.store.schema import answers as answers_table
from app.store.schema import audit, caller_tokens, evidence, kept_bytes, records, replicas, retired_keys, runs


def prune(
    connection: sa.Connection, before: int, now: int, batch: int, keep_evidence: Collection[str]
) -> int:
    """Delete at most `batch` rows of each sort that are older than `before`; how many went. A unit of work.

    A run goes with its record. Open runs stay whatever their age: they may still end. A kept answer goes when it has expired
    by `now`, and its run not before it. Evidence goes when no run refers to it and it is not in `keep_evidence`, which names
    what workers hold now and answers may refer to next.
    """
    # Empty counts out of the order of locks that `answers` tells: whoever waits for one of these holds no other count.
    gone = _gone(
        connection, kept_bytes.c.scope, (kept_bytes.c.scope != answers.TOTAL, kept_bytes.c.bytes == 0), batch
    )
    expired = _ids(connection, answers_table.c.run_id, (answers_table.c.expires_unix_ms <= now,), batch)
    answers.forget(connection, expired)
    old_runs = _ids(connection, runs.c.id, _old_runs(before), batch)
    freed = counts.of_runs(connection, old_runs)
    _delete(connection, records.c.run_id, old_runs)
    _delete(connection, runs.c.id, old_runs)
    gone += len(expired) + len(old_runs)
    for column, rules in (
        (audit.c.id, (audit.c.unix_ms < before,)),
        (caller_tokens.c.sha256, (caller_tokens.c.expires_unix_ms < before,)),
        (retired_keys.c.public_key, (retired_keys.c.until_unix_ms < now,)),
        (evidence.c.sha256, (evidence.c.created_unix_ms < before, _unreferenced(keep_evidence))),
        (replicas.c.id, (replicas.c.lease_until_unix_ms < before, ~_owns_open_runs())),
    ):
        gone += _gone(connection, column, rules, batch)
    counts.give_back(connection, freed)
    return gone


def _old_runs(before: int) -> tuple[sa.ColumnElement[bool], ...]:
    kept = sa.exists().where(answers_table.c.run_id == runs.c.id)
    return (runs.c.created_unix_ms < before, runs.c.settled == sa.true(), ~kept)


def _owns_open_runs() -> sa.ColumnElement[bool]:
    return sa.exists().where(runs.c.owner == replicas.c.id, runs.c.settled == sa.false())


def _unreferenced(keep: Collection[str]) -> sa.ColumnElement[bool]:
    referred = sa.exists().where(runs.c.evidence_sha256 == evidence.c.sha256)
    return sa.and_(~referred, evidence.c.sha256.not_in(list(keep)))


def _gone(
    connection: sa.Connection, key: sa.Column[Any], rules: tuple[sa.ColumnElement[bool], ...], batch: int
) -> int:
    ids = _ids(connection, key, rules, batch)
    _delete(connection, key, ids)
    return len(ids)


def _ids(
    connection: sa.Connection, key: sa.Column[Any], rules: tuple[sa.ColumnElement[bool], ...], batch: int
) -> list[Any]:
    # Two replicas that prune at once skip each other's rows instead of waiting for them.
    query = sa.select(key).where(*rules).limit(batch).with_for_update(skip_locked=True, of=key.table)
    return list(connection.execute(query).scalars())


def _delete(connection: sa.Connection, key: sa.Column[Any], values: list[Any]) -> None:
    if values:
        connection.execute(sa.delete(key.table).where(key.in_(values)))
