"""How a run is read: its columns, the queries that give them, the value they become."""

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any

import sqlalchemy as sa

from app.store.schema import answers, records, runs
from app.store.values import State, StoredRun
from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import Kind
from plimsoll.contract.tiers import Tier

RECORD = [field.name for field in fields(RunRecord)]
_RUN = [field.name for field in fields(StoredRun) if field.name != "record"]
_FLAGS = {name for name in _RUN if isinstance(runs.c[name].type, sa.Boolean)}
_RUN_COLUMNS = [runs.c[name] for name in _RUN]
_COLUMNS = [*_RUN_COLUMNS, *(records.c[name] for name in RECORD)]
_NOT_EXPIRED = answers.c.expires_unix_ms > sa.bindparam("now", type_=sa.BigInteger)

WIDTH = len(_COLUMNS)
"""Columns of one run with its record."""
UNSETTLED = (
    sa.select(*_RUN_COLUMNS, *(sa.null() for _ in RECORD))
    .where(runs.c.settled == sa.false())
    .order_by(runs.c.created_unix_ms, runs.c.id)
)
BY_KEY = (
    sa.select(*_COLUMNS, answers.c.fingerprint, answers.c.body)
    .select_from(answers.join(runs).outerjoin(records, records.c.run_id == runs.c.id))
    .where(
        answers.c.caller_id == sa.bindparam("caller"),
        answers.c.key_sha256 == sa.bindparam("key"),
        _NOT_EXPIRED,
    )
)
CANCELLED = (
    sa.select(runs.c.id)
    .where(
        runs.c.settled == sa.false(),
        runs.c.owner == sa.bindparam("owner"),
        runs.c.cancel_requested == sa.true(),
    )
    .order_by(runs.c.created_unix_ms, runs.c.id)
)


@cache
def one(*, own: bool) -> sa.Select[Any]:
    """One run by its id, `own`: of one caller."""
    return _joined(own=own).where(runs.c.id == sa.bindparam("run"))


@cache
def newest(*, own: bool, after: bool) -> sa.Select[Any]:
    """A page of runs, `after`: from a position on."""
    statement = _joined(own=own)
    if after:
        position = sa.tuple_(runs.c.created_unix_ms, runs.c.id)
        statement = statement.where(position < sa.tuple_(sa.bindparam("before"), sa.bindparam("before_id")))
    order = (runs.c.created_unix_ms.desc(), runs.c.id.desc())
    return statement.order_by(*order).limit(sa.bindparam("limit", type_=sa.Integer))


@cache
def body(*, own: bool) -> sa.Select[Any]:
    """The kept answer of one run."""
    statement = sa.select(answers.c.body).where(answers.c.run_id == sa.bindparam("run"), _NOT_EXPIRED)
    return statement.where(answers.c.caller_id == sa.bindparam("caller")) if own else statement


@cache
def grant_trace(*, own: bool) -> sa.Select[Any]:
    """What is kept of one run's calls."""
    statement = sa.select(runs.c.grant_trace).where(runs.c.id == sa.bindparam("run"))
    return statement.where(runs.c.caller_id == sa.bindparam("caller")) if own else statement


def _joined(*, own: bool) -> sa.Select[Any]:
    statement = sa.select(*_COLUMNS).select_from(runs.outerjoin(records))
    return statement.where(runs.c.caller_id == sa.bindparam("caller")) if own else statement


def stored(row: Sequence[Any]) -> StoredRun:
    """The run in the first columns of a row."""
    values = dict(zip(_RUN, row[: len(_RUN)], strict=True))
    for name in _FLAGS:
        values[name] = None if values[name] is None else bool(values[name])
    values |= {
        "kind": Kind(values["kind"]),
        "tier": Tier(values["tier"]),
        "state": State(values["state"]),
    }
    record = row[len(_RUN) : WIDTH]
    return StoredRun(**values, record=None if record[0] is None else RunRecord(*record))
