"""Runs that nobody will end: what an earlier process left open, and what belongs to replicas that are gone.

Parts of units of work. A run's line of the audit trail is written with its final word, so once.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from app.store import answers
from app.store.replicas import meet, now_at
from app.store.schema import audit, replicas, runs
from app.store.values import State

BATCH = 500
"""Runs adopted in one transaction; what is beyond waits for the next."""
_SAME = ("caller_id", "kind", "floor", "provider", "tier", "request_sha256", "reason")
_OPEN = runs.c.settled == sa.false()
_STATE = State.MAY_HAVE_RUN.value


def abandon(connection: sa.Connection, now_unix_ms: int, reason: str) -> int:
    """Every open run may have run, finally; how many there were."""
    connection.execute(sa.update(runs).where(_OPEN).values(state=_STATE, reason=reason))
    return len(_finalise(connection, _OPEN, now_unix_ms))


def adopt(connection: sa.Connection, own_id: str, reason: str, final_after_ms: int, now_unix_ms: int) -> int:
    """Open runs of replicas that are gone may have run, finally once their replica cannot come back; how many changed."""
    meet(connection, own_id)
    now = now_at(connection)
    lost = _ids(connection, own_id, replicas.c.lease_until_unix_ms < now, runs.c.state != _STATE)
    if lost:
        connection.execute(sa.update(runs).where(runs.c.id.in_(lost)).values(state=_STATE, reason=reason))
    over = replicas.c.lease_until_unix_ms <= now - final_after_ms
    ended = _ids(connection, own_id, over, runs.c.state == _STATE)
    if ended:
        _finalise(connection, runs.c.id.in_(ended), now_unix_ms)
    return len({*lost, *ended})


def _ids(connection: sa.Connection, own_id: str, *rules: sa.ColumnElement[bool]) -> Sequence[str]:
    """Open runs of others, locked. Replicas that adopt at once, and a run that is ending now, are passed by."""
    query = (
        sa.select(runs.c.id)
        .select_from(runs.join(replicas, replicas.c.id == runs.c.owner))
        .where(_OPEN, runs.c.owner != own_id, *rules)
        .order_by(runs.c.created_unix_ms, runs.c.id)
        .limit(BATCH)
        .with_for_update(skip_locked=True, of=runs)
    )
    return connection.execute(query).scalars().all()


def _finalise(connection: sa.Connection, which: sa.ColumnElement[bool], now_unix_ms: int) -> Sequence[Any]:
    """Settle these as they stand, with their lines of the trail and without their answers."""
    answers.release(connection, which)
    statement = sa.update(runs).where(which).values(settled=True)
    ended = connection.execute(statement.returning(runs.c.id, *(runs.c[name] for name in _SAME))).all()
    lines = [
        dict(zip(("run_id", *_SAME), row, strict=True))
        | {"unix_ms": now_unix_ms, "event": f"run.{State.MAY_HAVE_RUN}"}
        for row in ended
    ]
    if lines:
        connection.execute(sa.insert(audit).inline(), lines)
    return ended
