"""What each caller has stored, counted in the commits that change it, and the bound on it. Parts of units of work.

A run counts as `RUN_BYTES`, and with what is kept of its calls. Kept answers have counts of their own (see `answers`). A count
is the last row that a unit of work locks, callers' by their ids, which is what keeps Postgres from deadlocks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from app.store.hot import Hot
from app.store.schema import runs, stored
from app.store.values import StorageExceeded

RUN_BYTES: Final = 2_048
"""A run's row, record and line of the audit trail with their indexes; 1,650 were measured. Migration 0004 has it too."""


@dataclass(frozen=True, slots=True)
class StorageLimit:
    """The most runs that one caller may have stored, and the most bytes they may take."""

    runs: int
    bytes: int


UNLIMITED: Final = StorageLimit((1 << 63) - 1, (1 << 63) - 1)


def _counting(text: str, *numbers: str) -> sa.TextClause:
    # Postgres would take a number for one of 32 bits.
    return sa.text(text).bindparams(*(sa.bindparam(name, type_=sa.BigInteger) for name in numbers))


_ADMIT = Hot(
    _counting(
        "INSERT INTO stored (caller_id, runs, bytes) VALUES (:caller, 1, :more)"
        " ON CONFLICT (caller_id) DO UPDATE SET runs = stored.runs + 1, bytes = stored.bytes + excluded.bytes"
        " WHERE stored.runs < :most_runs AND stored.bytes <= :most_bytes - excluded.bytes"
        " RETURNING runs",
        "more",
        "most_runs",
        "most_bytes",
    )
)
_CHANGE = Hot(
    _counting(
        "UPDATE stored SET runs = runs + :runs, bytes = bytes + :bytes WHERE caller_id = :caller",
        "runs",
        "bytes",
    )
)
_TRACE = Hot(
    sa.select(runs.c.caller_id, sa.func.length(runs.c.grant_trace))
    .where(runs.c.id == sa.bindparam("run"))
    .with_for_update()
)


def admit(connection: sa.Connection, caller_id: str, limit: StorageLimit = UNLIMITED) -> None:
    """Count one more run of this caller. Raises StorageExceeded."""
    given = {"caller": caller_id, "more": RUN_BYTES, "most_runs": limit.runs, "most_bytes": limit.bytes}
    if not _ADMIT.run(connection, given):
        raise StorageExceeded("this caller has stored as much as it may")


def trace_of(connection: sa.Connection, run_id: str) -> tuple[str, int]:
    """The caller of a run, and the size of what is kept of its calls by now."""
    found = _TRACE.run(connection, {"run": run_id})
    return (found[0][0], found[0][1] or 0) if found else ("", 0)


def change(connection: sa.Connection, caller_id: str, *, bytes_more: int, runs_more: int = 0) -> None:
    """Count more, or less, of this caller."""
    if bytes_more or runs_more:
        _CHANGE.run(connection, {"caller": caller_id, "runs": runs_more, "bytes": bytes_more})


def of_runs(connection: sa.Connection, run_ids: list[str]) -> list[tuple[str, int, int]]:
    """By caller: how many of these runs are its own, and the bytes they count as."""
    traces = sa.func.coalesce(sa.func.sum(sa.func.length(runs.c.grant_trace)), 0)
    statement = (
        sa.select(runs.c.caller_id, sa.func.count(), traces)
        .where(runs.c.id.in_(run_ids))
        .group_by(runs.c.caller_id)
        .order_by(runs.c.caller_id)
    )
    return [(who, count, count * RUN_BYTES + int(size)) for who, count, size in connection.execute(statement)]


def give_back(connection: sa.Connection, freed: Iterable[tuple[str, int, int]]) -> None:
    """Take off what `of_runs` counted, once those runs are deleted; forget callers that have nothing left."""
    for caller_id, count, size in freed:
        change(connection, caller_id, runs_more=-count, bytes_more=-size)
    empty: Any = sa.select(stored.c.caller_id).where(stored.c.runs <= 0)
    gone = connection.execute(empty.with_for_update(skip_locked=True)).scalars().all()
    if gone:
        connection.execute(sa.delete(stored).where(stored.c.caller_id.in_(gone)))
