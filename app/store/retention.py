"""Retention: every table but `callers` forgets. Names of callers are never given twice, so their rows stay."""

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from app.store.schema import audit, caller_tokens, evidence, records, runs


def prune(connection: sa.Connection, before: int, batch: int, keep_evidence: Collection[str]) -> int:
    """Delete at most `batch` rows of each sort that are older than `before`; how many went. A unit of work.

    A run goes with its record. Open runs stay whatever their age: they may still end. Evidence goes when no run refers to it
    and it is not in `keep_evidence`, which names what workers hold now and answers may refer to next.
    """
    old_runs = _ids(
        connection, runs.c.id, (runs.c.created_unix_ms < before, runs.c.settled == sa.true()), batch
    )
    _delete(connection, records.c.run_id, old_runs)
    _delete(connection, runs.c.id, old_runs)
    gone = len(old_runs)
    for column, rules in (
        (audit.c.id, (audit.c.unix_ms < before,)),
        (caller_tokens.c.sha256, (caller_tokens.c.expires_unix_ms < before,)),
        (evidence.c.sha256, (evidence.c.created_unix_ms < before, _unreferenced(keep_evidence))),
    ):
        old = _ids(connection, column, rules, batch)
        _delete(connection, column, old)
        gone += len(old)
    return gone


def _unreferenced(keep: Collection[str]) -> sa.ColumnElement[bool]:
    referred = sa.exists().where(runs.c.evidence_sha256 == evidence.c.sha256)
    return sa.and_(~referred, evidence.c.sha256.not_in(list(keep)))


def _ids(
    connection: sa.Connection, key: sa.Column[Any], rules: tuple[sa.ColumnElement[bool], ...], batch: int
) -> list[Any]:
    # Two replicas that prune at once skip each other's rows instead of waiting for them.
    query = sa.select(key).where(*rules).limit(batch).with_for_update(skip_locked=True, of=key.table)
    return list(connection.execute(query).scalars())


def _delete(connection: sa.Connection, key: sa.Column[Any], values: list[Any]) -> None:
    if values:
        connection.execute(sa.delete(key.table).where(key.in_(values)))
